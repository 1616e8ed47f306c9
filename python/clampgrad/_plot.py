"""A convention seen: the clamp, a loss behind it, the gradient that x gets, and where descent goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from clampgrad._optional import need
from clampgrad._progress import progress
from clampgrad.functional import CONVENTIONS, clamp

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
    return lambda x: clamp(x, LO, HI, gradient=what, **keywords)  # type: ignore[arg-type]


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
    """Draws conventions, or functions of your own, a column each.

    Above: the function, the loss behind it, and the gradient that x gets (cut at the bounds, where
    a dot says what it is). Below: where gradient descent takes x from several starts.

    Args:
        what: names of conventions, drawn for ``clamp(x, -1, 1)``, or functions of a Tensor of one
            dimension that work element by element. Nothing: every convention.
        loss: what is minimised, a function of what the functions return, element by element.
        path: where to write the picture, if anywhere; its suffix is the format.

    Returns:
        The matplotlib Figure.

    Raises:
        ImportError: matplotlib is missing. ValueError: an unknown convention.
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
    axes[0, 0].legend(fontsize=7)
    axes[1, 0].set_ylabel("x")
    if path is not None:
        figure.savefig(path, dpi=100)
    return figure


def draw_curves(panel: Any, function: Function, loss: Function = example_loss) -> None:
    """The clamp, the loss and the gradient, into one panel of matplotlib."""
    y, values, gradient = curves(function, loss)
    red = {"color": "tab:red"}
    at_bound = (X == LO) | (X == HI)
    panel.axvspan(X[0].item(), LO, color="0.94")
    panel.axvspan(HI, X[-1].item(), color="0.94")
    panel.plot(X, y, color="0.5", linewidth=1, label="clamp(x, -1, 1)")
    panel.plot(X, values, color="tab:blue", label="loss")
    panel.plot(X, gradient.masked_fill(at_bound, torch.nan), label="d loss / dx", **red)
    panel.plot(X[at_bound], gradient[at_bound], "o", markersize=4, **red)
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
    panel.grid(alpha=0.25)


# ---- The gallery ---------------------------------------------------------------------------------


def conventions(path: str | Path) -> None:
    """One panel a convention: the clamp, the loss behind it, and the gradient that x gets."""
    figure = need("matplotlib.figure").Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    dotted = {"color": "tab:purple", "linestyle": ":", "linewidth": 2}
    for panel, how in zip(axes.flat, CONVENTIONS):
        draw_curves(panel, _function(how))
        if how in ("with_grad", "restoring"):
            _, _, ascent = curves(_function(how, maximize=True))
            outside = ascent.masked_fill(X.abs() <= 1, torch.nan)
            panel.plot(X, outside, label="… with maximize=True", **dotted)
            lines, labels = panel.get_legend_handles_labels()
            labels[1] = "loss = sin(π clamp(x, -1, 1)) + 1"
        panel.set_title(how, family="monospace", fontsize=11)
    axes.flat[3].tick_params(labelbottom=True)
    for panel in axes[1]:
        panel.set_xlabel("x")
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(lines, labels, loc="center", frameon=False, fontsize=9.5)
    figure.savefig(path, dpi=110)


def notebook(path: str | Path) -> None:
    """clamp, `clamp_with_grad` and what the notebook on it proposed, side by side."""
    figure = need("matplotlib.figure").Figure(figsize=(10, 3.4), layout="constrained")
    titles = {
        "min_norm": "clamp",
        "with_grad": "clamp_with_grad",
        "restoring": "clamp_with_grad_proposed",
    }
    for panel, (how, title) in zip(figure.subplots(1, 3, sharey=True), titles.items()):
        draw_curves(panel, _function(how))
        panel.set_title(f"{title}\n(gradient={how!r})", fontsize=10)
        panel.set_xlabel("x")
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=100)


def descents(path: str | Path) -> None:
    """`plot` of every convention."""
    plot(path=path)


GALLERY: Sequence[Callable[[Path], None]] = (conventions, notebook, descents)


def gallery(folder: str | Path) -> list[Path]:
    """Draws every picture into a folder; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{draw.__name__}.png" for draw in GALLERY]
    for draw, path in progress("pictures", list(zip(GALLERY, paths))):
        draw(path)
    return paths
