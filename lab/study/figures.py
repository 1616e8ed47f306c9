"""The figures of docs/study.md and docs/howto/qat.md, from the records.

python -m lab.study.figures [--out docs/img]
"""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from clampgrad._tools.style import BLUE, GREY, ORANGE, RED, TEAL, on_both
from lab.study import results
from lab.study.precision import PRECISIONS
from lab.study.results import interval, select


def ties(rows):
    """The share at each bound, quarter by quarter."""
    shown = [
        (model, site)
        for model, site in results.sites(rows)
        if any(any(row["at_bound"][site]) for row in select(rows, model=model))
    ]
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    panels = figure.subplots(2, 5, sharex=True, sharey=True).flat
    lines = {}
    for panel, (model, site) in zip(panels, shown):
        for i, (colour, precision) in enumerate(zip((GREY, BLUE, TEAL, ORANGE, RED), PRECISIONS)):
            runs = select(rows, model=model, precision=precision, gradient="inclusive")
            quarters = range(len(runs[0]["elements"][site]))
            found = [interval(results.share(r, site, window=q) for r in runs) for q in quarters]
            if any(share.mean for share in found):
                x = [q + 1 + 0.08 * (i - 2) for q in quarters]
                bars = [min(s.half, 0.9 * s.mean) for s in found], [s.half for s in found]
                style = dict(color=colour, marker="o", ms=2.5, lw=0.9)
                lines[precision] = panel.errorbar(x, [s.mean for s in found], bars, **style)
        panel.set_title(f"{model}\n{site}", fontsize=7)
        panel.set(yscale="log", xticks=[q + 1 for q in quarters])
        panel.tick_params(labelsize=7)
        panel.grid(axis="y", lw=0.3)
    for panel in panels:
        panel.axis("off")
    figure.supxlabel("quarter of the training", fontsize=8)
    figure.supylabel("share of elements exactly at the bound", fontsize=8)
    drawn = [precision for precision in PRECISIONS if precision in lines]
    where = dict(ncols=5, loc="outside upper center", fontsize=7)
    figure.legend([lines[precision] for precision in drawn], drawn, **where)
    return figure


def qat(rows):
    """The share of the weights at a bound over the training."""
    figure = Figure(figsize=(4.8, 3.0), layout="constrained")
    panel = figure.subplots()
    for weights, colour in (("int2", RED), ("int4", BLUE), ("int8", TEAL)):
        for gradient, style in (("joint", "--"), ("inclusive", "-")):
            runs = select(rows, weights=weights, gradient=gradient)
            parts = range(len(runs[0]["bounds"]))
            found = [interval(results.weights_at_bound(r, part) for r in runs) for part in parts]
            x = [part * rows[0]["steps"] / len(parts) for part in parts]
            low, high = zip(*((f.mean - f.half, f.mean + f.half) for f in found))
            label = f"{weights}, {gradient}"
            panel.plot(x, [f.mean for f in found], style, color=colour, lw=1.2, label=label)
            panel.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    panel.set(xlabel="step", ylabel="weights at a bound, %", yscale="log", ylim=(1, 60))
    ticks = (1, 2, 5, 10, 20, 50)
    panel.set_yticks(ticks, ticks)
    panel.minorticks_off()
    panel.tick_params(labelsize=7)
    figure.legend(loc="outside right center", fontsize=7)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.study.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for draw in (ties, qat):
        rows = results.read(draw.__name__)
        path = out / f"study_{draw.__name__}.png"
        on_both(lambda path: draw(rows).savefig(path, dpi=200), path)
