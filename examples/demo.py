"""Shows what your torch does at a bound, and what each convention does instead.

    python examples/demo.py [--out DIR]

Prints tables, and writes demo.json, conventions.png and image_fit.png.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch
from rich.progress import Progress

import at_the_bounds
import behind_a_clamp
import conventions
import image_fit
import show
import worked_example
from clampgrad._tools.style import on_both
from clampgrad._tools.tables import width_of


def tell(table):
    print(table.text(width_of(sys.stdout)))


def main():
    parser = argparse.ArgumentParser(description="What a clamp does to a gradient.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the files go")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # everything here is small
    began = time.perf_counter()

    data = {"torch": torch.__version__, "machine": platform.machine()}
    data["your_torch"] = at_the_bounds.your_torch()
    data["every_convention"] = at_the_bounds.every_convention()
    data["worked_example"] = worked_example.measure()
    release = data["torch"].partition("+")[0]
    tell(show.your_torch(data["your_torch"], release))
    tell(show.every_convention(data["every_convention"]))
    tell(show.worked_example(data["worked_example"]))

    data["behind_a_clamp"] = behind_a_clamp.measure()
    on_both(conventions.conventions, out / "conventions.png")

    with Progress() as progress:
        steps = image_fit.STEPS * len(image_fit.runs())
        task = progress.add_task("Fitting an image through clamp(0, 1)", total=steps)
        data["image_fit"], images = image_fit.measure(lambda: progress.advance(task))
    tell(show.wrong_pixels(data["image_fit"]))
    show.fitted_images(images, out / "image_fit.png")

    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    (out / "demo.json").write_text("{" + ",\n ".join(lines) + "}\n")
    for name in ("conventions.png", "image_fit.png", "demo.json"):
        print(f"wrote {out / name}")
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
