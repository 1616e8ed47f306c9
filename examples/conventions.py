"""Pictures of every convention, for light and for dark pages: those of README.md and of docs.

python examples/conventions.py [--out DIR]
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure

from clampgrad import CONVENTIONS, EXACT, maximum
from clampgrad._contract.table import STRICT
from clampgrad._tools.plot import HI, LO, X, curves, function_of, in_columns, shade_outside
from clampgrad._tools.style import BLUE, GREY, RED, on_both

# With numbers for bounds some are the same (min_norm and joint), so one panel shows them.
PANELS = {STRICT[0]: ", ".join(STRICT)} | {n: n for n in CONVENTIONS if n not in STRICT}


def conventions(path):
    """What x receives from clamp(x, -1, 1) for an incoming gradient of +1 and of -1. Three
    columns, which are legible on a phone."""
    figure = Figure(figsize=(6, 5.6), layout="constrained")
    names = [*PANELS, *[".", "."][: -len(PANELS) % 3]]
    rows = [names[i : i + 3] for i in range(0, len(names), 3)]
    upper, lower = figure.subfigures(2, 1, height_ratios=(len(rows), 1))
    axes = upper.subplot_mosaic(rows)
    for how, title in PANELS.items():
        draw_response(axes[how], how)
        axes[how].set_title(title, family="monospace", fontsize=10)
    for first, *_ in rows:
        axes[first].set_ylabel("gradient of x")
    key, tie = lower.subplots(1, 2, width_ratios=(1, 2))
    key.axis("off")
    key.legend(*axes[names[0]].get_legend_handles_labels(), loc="center")
    draw_tie(tie)
    figure.savefig(path)


def draw_response(panel, how):
    """The gradient of x for g = 1 and g = -1, as curves that are cut at the bounds."""
    shade_outside(panel)
    inside, at_bound = X.abs() < HI, X.abs() == HI
    for g, colour, width in ((1.0, RED, 4.5), (-1.0, BLUE, 2)):
        x = X.clone().requires_grad_()
        with torch.enable_grad():
            y = function_of(how)(x)
            (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, g))
        for part in (X < LO, inside, X > HI):
            label = f"incoming: {g:+.0f}".replace("-", "−") if part is inside else None
            line = {"color": colour, "linewidth": width, "solid_capstyle": "butt"}
            panel.plot(X[part], gradient[part], label=label, **line)
        style = {"markersize": 5 + width, "markeredgecolor": "white", "zorder": 3}
        panel.plot(X[at_bound], gradient[at_bound], "o", color=colour, **style)
    panel.set_ylim(-1.35, 1.35)
    panel.set_yticks([-1, 0, 1])


def draw_tie(panel):
    """Where min_norm and joint differ: a Tensor that is not being differentiated."""
    shares = {}
    for how in EXACT:
        x = torch.zeros(1, requires_grad=True)
        with torch.enable_grad():
            y = maximum(x, torch.zeros(1), gradient=how)
        shares[how] = torch.autograd.grad(y, x)[0].item()
    bars = panel.barh(list(shares), list(shares.values()), color=RED, height=0.55)
    panel.bar_label(bars, fmt="{:g}", padding=3)
    panel.set_title("maximum(x, c) at x = c, a constant Tensor", fontsize=10)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of x")
    panel.invert_yaxis()


def notebook(path):
    """clamp, `clamp_with_grad` and what the notebook on it proposed, side by side."""
    titles = {
        "min_norm": "clamp",
        "with_grad": "clamp_with_grad",
        "restoring": "clamp_with_grad_proposed",
    }
    figure = in_columns(list(titles))
    for panel, (how, title) in zip(figure.axes, titles.items()):
        panel.set_title(f"{title}\n(gradient={how!r})", fontsize=9)
    figure.savefig(path)


def descents(path):
    """The loss under every convention, and where gradient descent goes from several starts."""
    figure = in_columns(list(PANELS), most=3)
    for panel in figure.axes:
        if panel.get_title():
            panel.set_title(PANELS[panel.get_title()])
    figure.savefig(path)


def upgrade(path):
    """What PyTorch 2.14 changed: the gradient of a clamp at its bounds. Legible on a phone."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    releases = {"inclusive": "PyTorch 2.13", "joint": "PyTorch 2.14"}
    for panel, (how, title) in zip(panels, releases.items()):
        y, _, gradient = curves(function_of(how), loss=lambda y: y)
        at_bound = X.abs() == HI
        shade_outside(panel)
        panel.plot(X, y, color=GREY, linewidth=3, label="clamp(x, -1, 1)")
        for part in (X < LO, X.abs() < HI, X > HI):
            label = "its gradient" if part[0] else None
            panel.plot(X[part], gradient[part], color=RED, linewidth=4, label=label)
        panel.plot(X[at_bound], gradient[at_bound], "o", color=RED, markersize=13)
        panel.set_title(title, fontsize=16)
        panel.tick_params(labelsize=13)
        panel.set_yticks([-1, 0, 1])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=14)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the files go")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for draw in (upgrade, conventions, notebook, descents):
        on_both(draw, out / f"{draw.__name__}.png")


if __name__ == "__main__":
    main()
