"""The figures of docs/study.md and docs/howto/qat.md, from the records.

python -m lab.study.figures [--out docs/img] [--format png]: for print, --format pdf.
"""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from clampgrad._tools.style import BLUE, GREY, ORANGE, RED, TEAL, ink, on_both
from lab.study import intervals, summary
from lab.study.summary import PRECISIONS, by_seed, select

COLOURS = (GREY, BLUE, TEAL, ORANGE, RED)
NAMES = {"control": "control", "straight_through": "straight-through"}
SMALL = dict(fontsize=7)


def ties(rows):
    """The share at each bound, quarter by quarter."""
    shown = [
        (model, site)
        for model, site in summary.sites(rows)
        if any(any(row["at_bound"][site]) for row in select(rows, model=model))
    ]
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    panels = figure.subplots(2, 5, sharex=True, sharey=True)
    for panel in panels.flat[len(shown) :]:
        panel.axis("off")
    for panel, (model, site) in zip(panels.flat, shown):
        for colour, precision in zip(COLOURS, PRECISIONS):
            runs = select(rows, model=model, precision=precision, gradient="inclusive")
            quarters = range(len(runs[0]["elements"][site]))
            found = [intervals.of(summary.share(r, site, window=q) for r in runs) for q in quarters]
            if any(share.mean for share in found):
                x = [q + 1 + 0.08 * (PRECISIONS.index(precision) - 2) for q in quarters]
                bars = [min(s.half, 0.9 * s.mean) for s in found], [s.half for s in found]
                panel.errorbar(
                    *(x, [s.mean for s in found], bars),
                    **dict(color=colour, marker="o", ms=2.5, lw=0.9, label=precision),
                )
        panel.set_title(f"{model}\n{site}", fontsize=7)
        panel.set_yscale("log")
        panel.set_xticks([q + 1 for q in quarters])
        panel.tick_params(labelsize=7)
        panel.grid(axis="y", lw=0.3)
    figure.supxlabel("quarter of the training", fontsize=8)
    figure.supylabel("share of elements exactly at the bound", fontsize=8)
    drawn = {line.get_label(): line for p in panels.flat for line in p.containers}
    legend = {precision: drawn[precision] for precision in PRECISIONS if precision in drawn}
    figure.legend(
        *(legend.values(), legend.keys()),
        ncols=5,
        loc="outside upper center",
        frameon=False,
        **SMALL,
    )
    return figure


def outcome(rows):
    """How far from `inclusive` the runs of `joint` end, beside those of the control."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    models = summary.models(rows)
    panels = figure.subplots(1, len(models), sharey=True)
    for panel, model in zip(panels, models):
        for which, colour, shift in (("joint", RED, -0.15), ("control", BLUE, 0.15)):
            found = [summary.outcome(rows, model, p, which) for p in PRECISIONS]
            panel.errorbar(
                [1000 * f.mean for f in found],
                [i + shift for i in range(len(PRECISIONS))],
                xerr=[1000 * f.half for f in found],
                **dict(fmt="o", ms=3, lw=1, color=colour, label=which),
            )
        panel.axvline(0, color=ink(), lw=0.5)
        panel.set_title(model, fontsize=8)
        panel.tick_params(labelsize=7)
    panels[0].set_yticks(range(len(PRECISIONS)), PRECISIONS)
    panels[0].invert_yaxis()
    label = "loss at the end, difference from inclusive, in thousandths; each panel has a range of its own"
    figure.supxlabel(label, fontsize=8)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        **dict(ncols=2, loc="outside upper center", frameon=False, fontsize=7),
    )
    return figure


def relu0(rows):
    """Accuracy beside that of alpha = 0, by the formula that is meant and by the published one."""
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    precisions.sort(key=PRECISIONS.index)
    figure = Figure(figsize=(7.2, 2.4), layout="constrained")
    panels = figure.subplots(1, len(precisions), sharey=True)
    formulas = (("alpha * g", BLUE, "corrected: α g"), ("alpha", RED, "as published: α"))
    for panel, precision in zip(panels, precisions):
        base = by_seed(select(rows, precision=precision, alpha=0), lambda r: 100 * r["accuracy"])
        alphas = sorted({row["alpha"] for row in rows} - {0})
        for i, (formula, colour, label) in enumerate(formulas):
            runs = [select(rows, precision=precision, alpha=a, formula=formula) for a in alphas]
            found = [
                intervals.paired(by_seed(r, lambda row: 100 * row["accuracy"]), base) for r in runs
            ]
            x = [j + 0.16 * (i - 0.5) for j in range(len(alphas))]
            panel.errorbar(
                *(x, [f.mean for f in found], [f.half for f in found]),
                **dict(fmt="o", ms=3.5, lw=1, color=colour, label=label),
            )
        panel.axhline(0, color=ink(), lw=0.5)
        panel.set_xticks(range(len(alphas)), alphas)
        panel.set_xlim(-0.5, len(alphas) - 0.5)
        panel.set_title(precision, fontsize=8)
        panel.tick_params(labelsize=7)
    figure.supxlabel("α, the slope at 0", fontsize=8)
    panels[0].set_ylabel("points of accuracy\nrelative to α = 0", fontsize=8)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        **dict(ncols=2, loc="outside upper center", frameon=False, fontsize=7),
    )
    return figure


def qat(rows):
    """Left: the loss beside `inclusive`. Right: the share at a bound over the training."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [w for w in dict.fromkeys(row["weights"] for row in rows) if w != "float32"]
    others = ("joint", "half", "straight_through", "control")
    measured = {
        w: [g for g in others if select(rows, weights=w, gradient=g)] for w in names
    }  # a row has as many lines as were measured there, centred on its label
    for gradient, colour in zip(others, COLOURS[::-1]):
        found = {
            w: summary.qat_difference(rows, w, gradient, "excess_loss")
            for w in names
            if gradient in measured[w]
        }
        left.errorbar(
            [1000 * f.mean for f in found.values()],
            [
                names.index(w) + 0.18 * (measured[w].index(gradient) - (len(measured[w]) - 1) / 2)
                for w in found
            ],
            xerr=[1000 * f.half for f in found.values()],
            **dict(fmt="o", ms=3, lw=1, color=colour, label=NAMES.get(gradient, gradient)),
        )
    left.axvline(0, color=ink(), lw=0.5)
    left.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlabel("loss relative to inclusive, thousandths of a nat", fontsize=8)
    for weights, colour in (("int8", COLOURS[2]), ("int4", COLOURS[1]), ("int2", COLOURS[4])):
        for gradient, style in (("inclusive", "-"), ("joint", "--")):
            runs = select(rows, weights=weights, gradient=gradient)
            bounds = summary.bounds_of_weights(weights)
            parts = range(len(runs[0]["bounds"]))
            found = [
                intervals.of(100 * summary.at_bound(r["bounds"][i], bounds) for r in runs)
                for i in parts
            ]
            x = [i * rows[0]["steps"] / len(parts) for i in parts]
            low, high = zip(*((f.mean - f.half, f.mean + f.half) for f in found))
            right.plot(
                *(x, [f.mean for f in found], style),
                **dict(color=colour, lw=1.2, label=f"{weights}, {gradient}"),
            )
            right.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    right.set_xlabel("step", fontsize=8)
    right.set_ylabel("weights at a bound, %", fontsize=8)
    right.set_yscale("log")
    ticks = (1, 2, 5, 10, 20, 50)
    right.set_yticks(ticks, ticks)
    right.minorticks_off()
    right.set_ylim(1, 60)
    for panel in (left, right):
        panel.tick_params(labelsize=7)
    left.legend(frameon=False, **SMALL)
    right.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.17), **SMALL)
    return figure


def main():
    parser = argparse.ArgumentParser(prog="python -m lab.study.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("--format", default="png")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    read = summary.read
    drawn = {"ties": ties, "outcome": outcome, "relu0": relu0, "qat": qat}
    records = {"outcome": "ties"}
    for name, draw in drawn.items():
        rows = read(records.get(name, name))
        path = arguments.out / f"study_{name}.{arguments.format}"
        on_both(lambda path: draw(rows).savefig(path, dpi=200), path)


if __name__ == "__main__":
    main()
