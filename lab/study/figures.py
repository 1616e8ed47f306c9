"""The figures of docs/study.md and docs/howto/qat.md, from the records.

python -m lab.study.figures [--out docs/img] [--format png]: for print, --format pdf.
"""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from clampgrad._tools.style import BLUE, GREY, ORANGE, RED, TEAL, ink, on_both
from lab.study import results
from lab.study.results import PRECISIONS, change, different, interval, select

COLOURS = (GREY, BLUE, TEAL, ORANGE, RED)
NAMES = {"straight_through": "straight-through"}


def panels(height, *shape, **shared):
    figure = Figure(figsize=(7.2, height), layout="constrained")
    drawn = figure.subplots(*shape, **shared)
    for panel in drawn.flat:
        panel.tick_params(labelsize=7)
    return figure, drawn


def points(panel, found, places, upright=False, size=3, **style):
    """Means with their intervals, beside each other at `places`."""
    means, halves = zip(*found)
    style = dict(fmt="o", ms=size, lw=1, **style)
    if upright:
        panel.errorbar(places, means, halves, **style)
    else:
        panel.errorbar(means, places, xerr=halves, **style)


def legend_above(figure, lines, labels):
    where = dict(ncols=5, loc="outside upper center", frameon=False, fontsize=7)
    figure.legend(lines, labels, **where)


def ties(rows):
    """The share at each bound, quarter by quarter."""
    shown = [
        (model, site)
        for model, site in results.sites(rows)
        if any(any(row["at_bound"][site]) for row in select(rows, model=model))
    ]
    figure, drawn = panels(4.6, 2, 5, sharex=True, sharey=True)
    for panel in drawn.flat[len(shown) :]:
        panel.axis("off")
    lines = {}
    for panel, (model, site) in zip(drawn.flat, shown):
        for i, (colour, precision) in enumerate(zip(COLOURS, PRECISIONS)):
            runs = select(rows, model=model, precision=precision, gradient="inclusive")
            quarters = range(len(runs[0]["elements"][site]))
            found = [interval(results.share(r, site, window=q) for r in runs) for q in quarters]
            if any(share.mean for share in found):
                x = [q + 1 + 0.08 * (i - 2) for q in quarters]
                bars = [min(s.half, 0.9 * s.mean) for s in found], [s.half for s in found]
                style = dict(color=colour, marker="o", ms=2.5, lw=0.9)
                lines[precision] = panel.errorbar(x, [s.mean for s in found], bars, **style)
        panel.set_title(f"{model}\n{site}", fontsize=7)
        panel.set_yscale("log")
        panel.set_xticks([q + 1 for q in quarters])
        panel.grid(axis="y", lw=0.3)
    figure.supxlabel("quarter of the training", fontsize=8)
    figure.supylabel("share of elements exactly at the bound", fontsize=8)
    labels = [precision for precision in PRECISIONS if precision in lines]
    legend_above(figure, [lines[precision] for precision in labels], labels)
    return figure


def outcome(rows):
    """How far from `inclusive` the runs of `joint` end, beside those of the control."""
    models = different(rows, "model")
    figure, drawn = panels(2.8, 1, len(models), sharey=True)
    for panel, model in zip(drawn, models):
        for which, colour, shift in (("joint", RED, -0.15), ("control", BLUE, 0.15)):
            runs = [select(rows, model=model, precision=precision) for precision in PRECISIONS]
            found = [
                change(select(r, gradient=which), select(r, gradient="inclusive"), "loss", 1000)
                for r in runs
            ]
            places = [i + shift for i in range(len(PRECISIONS))]
            points(panel, found, places, color=colour, label=which)
        panel.axvline(0, color=ink(), lw=0.5)
        panel.set_title(model, fontsize=8)
    drawn[0].set_yticks(range(len(PRECISIONS)), PRECISIONS)
    drawn[0].invert_yaxis()
    label = "loss at the end, difference from inclusive, in thousandths; each panel has a range of its own"
    figure.supxlabel(label, fontsize=8)
    legend_above(figure, *drawn[0].get_legend_handles_labels())
    return figure


def relu0(rows):
    """Accuracy beside that of alpha = 0, by the formula that is meant and by the published one."""
    precisions = sorted(different(rows, "precision"), key=PRECISIONS.index)
    alphas = sorted({row["alpha"] for row in rows} - {0})
    figure, drawn = panels(2.4, 1, len(precisions), sharey=True)
    formulas = (("alpha * g", BLUE, "corrected: α g"), ("alpha", RED, "as published: α"))
    for panel, precision in zip(drawn, precisions):
        here = select(rows, precision=precision)
        for i, (formula, colour, label) in enumerate(formulas):
            runs = [select(here, alpha=alpha, formula=formula) for alpha in alphas]
            found = [change(r, select(here, alpha=0), "accuracy", 100) for r in runs]
            places = [j + 0.16 * (i - 0.5) for j in range(len(alphas))]
            points(panel, found, places, upright=True, size=3.5, color=colour, label=label)
        panel.axhline(0, color=ink(), lw=0.5)
        panel.set_xticks(range(len(alphas)), alphas)
        panel.set_xlim(-0.5, len(alphas) - 0.5)
        panel.set_title(precision, fontsize=8)
    figure.supxlabel("α, the slope at 0", fontsize=8)
    drawn[0].set_ylabel("points of accuracy\nrelative to α = 0", fontsize=8)
    legend_above(figure, *drawn[0].get_legend_handles_labels())
    return figure


def qat(rows):
    """Left: the loss beside `inclusive`. Right: the share at a bound over the training."""
    figure, (left, right) = panels(3.0, 1, 2)
    runs = {w: select(rows, weights=w) for w in different(rows, "weights") if w != "float32"}
    beside = {
        w: [g for g in different(of, "gradient") if g != "inclusive"] for w, of in runs.items()
    }
    for gradient, colour in zip(("joint", "half", "straight_through", "control"), COLOURS[::-1]):
        found, places = [], []
        for row, (weights, of) in enumerate(runs.items()):
            if gradient in (others := beside[weights]):
                base = select(of, gradient="inclusive")
                found.append(change(select(of, gradient=gradient), base, "excess_loss", 1000))
                # A row has as many lines as were measured there, centred on its label.
                places.append(row + 0.18 * (others.index(gradient) - (len(others) - 1) / 2))
        points(left, found, places, color=colour, label=NAMES.get(gradient, gradient))
    left.axvline(0, color=ink(), lw=0.5)
    left.set_yticks(range(len(runs)), [name.replace(", ", ",\n") for name in runs])
    left.set_ylim(len(runs) - 0.5, -0.5)
    left.set_xlabel("loss relative to inclusive, thousandths of a nat", fontsize=8)
    for weights, colour in (("int8", COLOURS[2]), ("int4", COLOURS[1]), ("int2", COLOURS[4])):
        for gradient, style in (("inclusive", "-"), ("joint", "--")):
            of = select(runs[weights], gradient=gradient)
            parts = range(len(of[0]["bounds"]))
            found = [interval(results.weights_at_bound(r, part) for r in of) for part in parts]
            x = [part * rows[0]["steps"] / len(parts) for part in parts]
            low, high = zip(*((f.mean - f.half, f.mean + f.half) for f in found))
            label = f"{weights}, {gradient}"
            right.plot(x, [f.mean for f in found], style, color=colour, lw=1.2, label=label)
            right.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    right.set_xlabel("step", fontsize=8)
    right.set_ylabel("weights at a bound, %", fontsize=8)
    right.set_yscale("log")
    ticks = (1, 2, 5, 10, 20, 50)
    right.set_yticks(ticks, ticks)
    right.minorticks_off()
    right.set_ylim(1, 60)
    above = dict(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.17))
    left.legend(frameon=False, fontsize=7)
    right.legend(frameon=False, fontsize=7, **above)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.study.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("--format", default="png")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw, study in ((ties, "ties"), (outcome, "ties"), (relu0, "relu0"), (qat, "qat")):
        rows = results.read(study)
        path = given.out / f"study_{draw.__name__}.{given.format}"
        on_both(lambda path: draw(rows).savefig(path, dpi=200), path)
