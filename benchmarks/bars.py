"""What must hold (bars.yaml), and what the records say of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import yaml

BARS = yaml.safe_load(Path(__file__).with_name("bars.yaml").read_text())
DTYPES = ("float32", "bfloat16")
EVERY_DTYPE = (*DTYPES, "float16")
USUAL = {"direction": "both", "threads": 1, "malloc": "fixed"}


def blocks(results, **key):
    """The rows of a record of benchmarks.run with this key. The first function of a row is ours."""
    return [row for row in results["rows"] if key.items() <= row.items()]


def ratios(results, kind):
    """A line for every bar that these results can be held to."""
    for bar in BARS[kind]:
        key = {what: bar.get(what, usual) for what, usual in USUAL.items()}
        unusual = [f"{what}: {bar[what]}" for what in (*USUAL, "of") if what in bar]
        for n, rival, dtype in product(bar["n"], bar["rivals"], EVERY_DTYPE):
            if dtype not in bar:
                continue
            for row in blocks(results, group=bar["group"], n=n, dtype=dtype, **key):
                first = next(iter(row["functions"]))
                medians = {name: times["median"] for name, times in row["functions"].items()}
                ratio = medians[rival] / medians[bar.get("of", first)]
                missed = "  missed" if round(ratio, 2) < bar[dtype] else ""
                what = ", ".join([bar["group"], f"N = {size(n)}", dtype, *unusual])
                yield f"{rival} / ours: {ratio:.2f}, target {bar[dtype]:g}: {what}{missed}"


def size(n):
    return f"2^{n.bit_length() - 1}" if n > 1 else "1"


def portable(results):
    """A line for every bar of the portable implementation, which stands beside torch."""
    for bar in BARS["portable"]:
        for row in blocks(results, n=bar["n"], what=bar["what"]):
            if row["gradient"] not in bar.get("gradients", row["gradient"]):
                continue
            times = row["microseconds"]
            for way in bar["ways"]:
                time, stock = times[way], times["torch.clamp"]
                by_unit = {"microseconds": time, "more": time - stock, "times": time / stock}
                (unit,) = by_unit.keys() & bar.keys()
                missed = "  missed" if round(by_unit[unit], 2) > bar[unit] else ""
                what = f"{way}, {row['what']}, {row['gradient']}, N = {size(bar['n'])}"
                yield f"{unit}: {by_unit[unit]:.2f}, at most {bar[unit]:g}: {what}{missed}"
