"""What your torch does at a bound, and what each convention does instead.

    python examples/demo.py [--out DIR]

Prints tables, and writes demo.json, conventions.png and image_fit.png.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

import at_the_bounds
import behind_a_clamp
import image_fit
import show
import worked_example
from clampgrad._tools import plot as _plot


def main():
    parser = argparse.ArgumentParser(description="What a clamp does to a gradient.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the files go")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # everything here is small
    console = Console()
    began = time.perf_counter()

    data = {"torch": torch.__version__, "machine": platform.machine()}
    data["your_torch"] = at_the_bounds.your_torch()
    data["every_convention"] = at_the_bounds.every_convention()
    data["worked_example"] = worked_example.measure()
    release = data["torch"].partition("+")[0]
    console.print(show.your_torch(data["your_torch"], release))
    console.print(show.every_convention(data["every_convention"]))
    console.print(show.worked_example(data["worked_example"]))

    data["behind_a_clamp"] = behind_a_clamp.measure()
    _plot.conventions(out / "conventions.png")

    with Progress(console=console) as progress:
        steps = image_fit.STEPS * len(image_fit.runs())
        task = progress.add_task("Fitting an image through clamp(0, 1)", total=steps)
        data["image_fit"], images = image_fit.measure(lambda: progress.advance(task))
    console.print(show.wrong_pixels(data["image_fit"]))
    show.fitted_images(images, out / "image_fit.png")

    (out / "demo.json").write_text(json.dumps(data, indent=1) + "\n")
    for name in ("conventions.png", "image_fit.png", "demo.json"):
        console.print(f"wrote {out / name}", highlight=False)
    console.print(f"{time.perf_counter() - began:.1f} s", highlight=False)


if __name__ == "__main__":
    main()
