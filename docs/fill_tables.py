"""Fill the generated tables of README.md from docs/demo.json: `make pictures` does both.

A table stands between <!-- generated: NAME --> and <!-- end -->; nothing else is touched.
"""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def conventions():
    """One row a convention: its gradient of a clamp, what that did to the image, its rule."""
    data = json.loads((ROOT / "docs/demo.json").read_text())
    rules = yaml.safe_load((ROOT / "test/conventions.yaml").read_text())["conventions"]
    clamp, fit = data["every_convention"], data["image_fit"]
    rows = [
        ["`gradient=`", *(f"x = {x}" for x in clamp["x"]), "wrong pixels", "rule"],
        ["---", *["---:"] * (len(clamp["x"]) + 1), "---"],
    ]
    for how, gradient in clamp["gradient"].items():
        share = f"{fit['wrong'][how]['mean']:.0%}"
        rows.append([f"`{how}`", *(f"{g:g}" for g in gradient), share, rules[how]])
    note = (
        f"Columns x: the gradient of `{clamp['function']}` for an incoming gradient g of 1. "
        f"Wrong pixels: of an image fitted through `clamp(0, 1)` in {fit['steps']} steps of Adam "
        f"({fit['wrong']['start']:.0%} at the start). Measured with torch {data['torch']}."
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n\n" + note


TABLES = {"conventions": conventions}


def fill(text):
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)",
        lambda m: m[1] + TABLES[m[2]]() + "\n" + m[3],
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    README.write_text(fill(README.read_text()))
