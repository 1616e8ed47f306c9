"""What the examples share: each measures something, prints it, and draws a picture of it.

python examples/NAME.py [--out DIR]
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from clampgrad._tools.style import BLUE, on_both


def main(measure, draw):
    """Runs the example that is the program: measures, prints, writes NAME.json and NAME.png."""
    name, text = Path(sys.argv[0]).stem, measure.__globals__["__doc__"]
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the files go")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    print(text)
    data = measure()
    print(json.dumps(data, indent=1))
    (out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")

    def picture(path):
        figure = Figure(figsize=(6, 3), layout="constrained")
        draw(figure, data)
        figure.savefig(path)

    on_both(picture, out / f"{name}.png")


def bars(panel, values, label, text="{:.3g}"):
    """One bar per name, with its value as text."""
    drawn = panel.barh(list(values), list(values.values()), color=BLUE, height=0.6)
    panel.bar_label(drawn, fmt=text, padding=2)
    panel.set_xlabel(label)
    panel.invert_yaxis()
    panel.margins(x=0.15)
