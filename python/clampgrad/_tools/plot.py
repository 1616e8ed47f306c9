"""Pictures of conventions: what x receives, a loss behind a clamp, and where descent goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from clampgrad._contract.table import CONVENTIONS, EXACT, STRICT
from clampgrad._tools.optional import need
from clampgrad._tools.progress import progress
from clampgrad.functional import clamp, maximum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Function: TypeAlias = Callable[[Tensor], Tensor]

LO, HI = -1.0, 1.0
# Hundredths, so that the bounds themselves are among the points.
X = torch.arange(-200, 201) / 100
STARTS = (-1.75, -1.25, -0.9, 0.25, 0.75, 1.25, 1.75)


def example_loss(y: Tensor) -> Tensor:
    """sin(pi y) + 1: in [-1, 1] its minimum is at -0.5."""
    return torch.sin(math.pi * y) + 1


def _function(what: str | Function, **keywords: Any) -> Function:
    if callable(what):
        return what
    gradient: Any = what
    return lambda x: clamp(x, LO, HI, gradient=gradient, **keywords)


def curves(function: Function, loss: Function = example_loss) -> tuple[Tensor, Tensor, Tensor]:
    """The function, the loss and the gradient of the loss at every point of X."""
    x = X.clone().requires_grad_()
    with torch.enable_grad():
        y = function(x)
        values = loss(y)
        (gradient,) = torch.autograd.grad(values, x, torch.ones_like(values))
    return y.detach(), values.detach(), gradient


def descent(
    function: Function, loss: Function = example_loss, steps: int = 60, rate: float = 0.03
) -> Tensor:
    """x from every start in STARTS, after 0, 1, ... steps of gradient descent: [steps + 1, starts]."""
    x = torch.tensor(STARTS, requires_grad=True)
    path = [x.detach().clone()]
    with torch.enable_grad():
        for _ in range(steps):
            (gradient,) = torch.autograd.grad(loss(function(x)).sum(), x)
            x = (x - rate * gradient).detach().requires_grad_()
            path.append(x.detach())
    return torch.stack(path)


def plot(
    *what: str | Function, loss: Function = example_loss, path: str | Path | None = None
) -> Figure:
    """Draws conventions, or functions of your own, one column per function.

    Above: the function, the loss behind it, and the gradient that x receives (a dot marks its value
    at a bound). Below: where gradient descent takes x from several starting points; a dashed line is
    a start that never moves.

    Args:
        what: names of conventions, drawn for ``clamp(x, -1, 1)``, or functions of a Tensor of one
            dimension that work element by element. Default: every convention.
        loss: what is minimised, a function of what the functions return, element by element.
        path: the file to write, or None to write none; its suffix decides the format.

    Returns:
        The matplotlib Figure.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: a convention is unknown.
    """
    what = what or CONVENTIONS
    columns = len(what)
    figure = need("matplotlib.figure").Figure(
        figsize=(max(2.4 * columns, 4), 5), layout="constrained"
    )
    axes = figure.subplots(2, columns, sharex="row", sharey="row", squeeze=False)
    for (top, bottom), one in zip(axes.T, what):
        function = _function(one)
        draw_curves(top, function, loss)
        draw_descent(bottom, function, loss)
        top.set_title(one if isinstance(one, str) else getattr(one, "__name__", "function"))
        top.set_xlabel("x")
        bottom.set_xlabel("step")
    legend(figure, axes[0, 0])
    axes[1, 0].set_ylabel("x, by gradient descent")
    if path is not None:
        figure.savefig(path, dpi=100)
    return figure


def draw_curves(panel: Any, function: Function, loss: Function = example_loss) -> None:
    """The loss, the clamp and the gradient, each narrower than the one below it, so none is hidden."""
    y, values, gradient = curves(function, loss)
    red = {"color": "tab:red"}
    at_bound = (X == LO) | (X == HI)
    shade_outside(panel)
    panel.plot(X, values, color="tab:blue", alpha=0.35, linewidth=7, label="loss")
    panel.plot(X, y, color="0.55", linewidth=3.5, label="clamp(x, -1, 1)")
    panel.plot(X, gradient.masked_fill(at_bound, torch.nan), label="d loss / dx", **red)
    panel.plot(X[at_bound], gradient[at_bound], "o", markersize=4, **red)


def legend(figure: Any, panel: Any) -> None:
    """One legend for all panels, below them."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def shade_outside(panel: Any) -> None:
    panel.axvspan(X[0].item(), LO, color="0.94")
    panel.axvspan(HI, X[-1].item(), color="0.94")
    panel.set_xlim(X[0].item(), X[-1].item())
    panel.set_xticks([LO, 0, HI])
    panel.grid(alpha=0.25)


def draw_descent(panel: Any, function: Function, loss: Function = example_loss) -> None:
    """The paths of gradient descent; one that never moves is dashed."""
    path = descent(function, loss)
    for column in path.T:
        stuck = bool((column == column[0]).all())
        style = {"color": "0.4", "linestyle": "--"} if stuck else {"color": "tab:green"}
        panel.plot(column, linewidth=1, **style)
    for bound in (LO, HI):
        panel.axhline(bound, color="0.8", linewidth=1)
    panel.set_ylim(-2.2, 3.2)  # straight_through leaves
    panel.grid(alpha=0.25)


# ---- The gallery ---------------------------------------------------------------------------------

# With numbers for bounds some are the same (min_norm and joint), so one panel shows them.
PANELS = {STRICT[0]: ", ".join(STRICT)} | {n: n for n in CONVENTIONS if n not in STRICT}


def conventions(path: str | Path) -> None:
    """What x receives from clamp(x, -1, 1) for an incoming gradient of +1 and of -1."""
    figure = need("matplotlib.figure").Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots(2, (len(PANELS) + 3) // 2)
    for panel, (how, title) in zip([*axes[0, :-1], *axes[1]], PANELS.items()):
        draw_response(panel, how)
        panel.set_title(title, family="monospace", fontsize=11)
    draw_tie(axes[0, -1])
    axes[0, 0].set_ylabel("gradient of x")
    axes[1, 0].set_ylabel("gradient of x")
    axes[1, -1].axis("off")
    axes[1, -1].legend(*axes[1, 0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.savefig(path, dpi=110)


def draw_response(panel: Any, how: str) -> None:
    """The gradient of x for g = 1 and g = -1, as curves that are cut at the bounds."""
    shade_outside(panel)
    inside, at_bound = X.abs() < HI, X.abs() == HI
    for g, colour, width in ((1.0, "tab:red", 4.5), (-1.0, "tab:blue", 2)):
        x = X.clone().requires_grad_()
        with torch.enable_grad():
            y = _function(how)(x)
            (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, g))
        for part in (X < LO, inside, X > HI):
            label = f"incoming gradient {g:+.0f}".replace("-", "−") if part is inside else None
            line = {"color": colour, "linewidth": width, "solid_capstyle": "butt"}
            panel.plot(X[part], gradient[part], label=label, **line)
        style = {"markersize": 5 + width, "markeredgecolor": "white", "zorder": 3}
        panel.plot(X[at_bound], gradient[at_bound], "o", color=colour, **style)
    panel.set_ylim(-1.35, 1.35)
    panel.set_yticks([-1, -0.5, 0, 0.5, 1])
    panel.set_xlabel("x")


def draw_tie(panel: Any) -> None:
    """Where min_norm and joint differ: a Tensor that is not being differentiated."""
    shares = {}
    how: Any
    for how in EXACT:
        x = torch.zeros(1, requires_grad=True)
        with torch.enable_grad():
            y = maximum(x, torch.zeros(1), gradient=how)
        shares[how] = torch.autograd.grad(y, x)[0].item()
    bars = panel.barh(list(shares), list(shares.values()), color="tab:red", height=0.55)
    panel.bar_label(bars, fmt="{:g}", padding=3)
    panel.set_title("maximum(x, c) at x = c,\nc a constant Tensor", fontsize=10)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of x")
    panel.invert_yaxis()


def notebook(path: str | Path) -> None:
    """clamp, `clamp_with_grad` and what the notebook on it proposed, side by side."""
    figure = need("matplotlib.figure").Figure(figsize=(10, 3.6), layout="constrained")
    titles = {
        "min_norm": "clamp",
        "with_grad": "clamp_with_grad",
        "restoring": "clamp_with_grad_proposed",
    }
    panels = figure.subplots(1, 3, sharey=True)
    for panel, (how, title) in zip(panels, titles.items()):
        draw_curves(panel, _function(how))
        panel.set_title(f"{title}\n(gradient={how!r})", fontsize=10)
        panel.set_xlabel("x")
    legend(figure, panels[0])
    figure.savefig(path, dpi=100)


def descents(path: str | Path) -> None:
    """The loss under every convention, and where gradient descent goes from several starts."""
    figure = plot(*PANELS)
    for panel, title in zip(figure.axes, PANELS.values()):
        panel.set_title(title)
    figure.savefig(path, dpi=100)


GALLERY: Sequence[Callable[[Path], None]] = (conventions, notebook, descents)


def gallery(folder: str | Path) -> list[Path]:
    """Draws all pictures into a folder, which is created if it does not exist, and returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{draw.__name__}.png" for draw in GALLERY]
    for draw, path in progress("pictures", list(zip(GALLERY, paths))):
        draw(path)
    return paths
