"""Pictures of conventions: what x receives, a loss behind a clamp, and where descent goes."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from clampgrad._contract.table import CONVENTIONS
from clampgrad._tools.style import BLUE, GREY, RED, TEAL, need, style
from clampgrad.functional import clamp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Function: TypeAlias = Callable[[Tensor], Tensor]

LO = -1.0
HI = 1.0
# Hundredths, so that the bounds themselves are among the points.
X = torch.arange(-200, 201) / 100
STARTS = (-1.75, -1.25, -0.9, 0.25, 0.75, 1.25, 1.75)


def example_loss(y: Tensor) -> Tensor:
    """Returns sin(pi y) + 1: in [-1, 1] its minimum is at -0.5."""
    return torch.sin(math.pi * y) + 1


def function_of(what: str | Function, **keywords: Any) -> Function:
    if callable(what):
        return what
    gradient: Any = what
    return lambda x: clamp(x, LO, HI, gradient=gradient, **keywords)


def curves(function: Function, loss: Function = example_loss) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the function, the loss and the gradient of the loss at every point of X."""
    x = X.clone().requires_grad_()
    with torch.enable_grad():
        y = function(x)
        values = loss(y)
        (gradient,) = torch.autograd.grad(values, x, torch.ones_like(values))
    return y.detach(), values.detach(), gradient


def descent(
    function: Function, loss: Function = example_loss, steps: int = 60, rate: float = 0.03
) -> Tensor:
    """Returns x from every start in STARTS, after 0, 1, ... steps of gradient
    descent: [steps + 1, starts]."""
    x = torch.tensor(STARTS, requires_grad=True)
    path = [x.detach().clone()]
    with torch.enable_grad():
        for _ in range(steps):
            (gradient,) = torch.autograd.grad(loss(function(x)).sum(), x)
            x = (x - rate * gradient).detach().requires_grad_()
            path.append(x.detach())
    return torch.stack(path)


@style()
def plot(
    *what: str | Function, loss: Function = example_loss, path: str | Path | None = None
) -> "Figure":
    """Draws conventions, or functions of your own, one column per function.

    Above: the function, the loss behind it, and the gradient that x receives (a dot marks its
    value at a bound). Below: where gradient descent takes x from several starting points; a dashed
    line is a start that never moves.

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
    figure = in_columns(what or CONVENTIONS, loss)
    if path is not None:
        figure.savefig(path)
    return figure


def in_columns(
    what: Sequence[str | Function], loss: Function = example_loss, most: int | None = None
) -> "Figure":
    """Draws one column for each: the curves above, the paths of descent below. Columns
    beyond the number `most` go below the first ones."""
    columns = min(len(what), most or len(what))
    bands = -(-len(what) // columns)
    figure = need("matplotlib.figure").Figure(
        figsize=(max(2 * columns, 4), 4.4 * bands), layout="constrained"
    )
    axes = figure.subplots(2 * bands, columns, sharex="row", sharey="row", squeeze=False)
    for i, one in enumerate(what):
        band, column = divmod(i, columns)
        top, bottom = axes[2 * band : 2 * band + 2, column]
        function = function_of(one)
        draw_curves(top, function, loss)
        draw_descent(bottom, function, loss)
        top.set_title(one if isinstance(one, str) else getattr(one, "__name__", "function"))
        top.set_xlabel("x")
        bottom.set_xlabel("step")
    legend(figure, axes[0, 0])
    for bottom in axes[1::2, 0]:
        bottom.set_ylabel("x, by gradient descent")
    return figure


def draw_curves(panel: Any, function: Function, loss: Function = example_loss) -> None:
    """Draws the loss, the clamp and the gradient, each narrower than the one
    below it, so none is hidden."""
    y, values, gradient = curves(function, loss)
    red = {"color": RED}
    at_bound = (X == LO) | (X == HI)
    shade_outside(panel)
    panel.plot(X, values, color=BLUE, alpha=0.35, linewidth=7, label="loss")
    panel.plot(X, y, color=GREY, linewidth=3.5, label="clamp(x, -1, 1)")
    panel.plot(X, gradient.masked_fill(at_bound, torch.nan), label="d loss / dx", **red)
    panel.plot(X[at_bound], gradient[at_bound], "o", markersize=4, **red)


def legend(figure: Any, panel: Any) -> None:
    """Draws one legend for all panels, below them."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def shade_outside(panel: Any) -> None:
    for left, right in ((X[0].item(), LO), (HI, X[-1].item())):
        panel.axvspan(left, right, color=GREY, alpha=0.14, linewidth=0)
    panel.set_xlim(X[0].item(), X[-1].item())
    panel.set_xticks([LO, 0, HI])
    panel.grid()


def draw_descent(panel: Any, function: Function, loss: Function = example_loss) -> None:
    """Draws the paths of gradient descent; one that never moves is dashed."""
    path = descent(function, loss)
    for column in path.T:
        stuck = bool((column == column[0]).all())
        style = {"color": GREY, "linestyle": "--"} if stuck else {"color": TEAL}
        panel.plot(column, linewidth=1, **style)
    for bound in (LO, HI):
        panel.axhline(bound, color=GREY, alpha=0.5, linewidth=1)
    panel.set_ylim(-2.2, 3.2)  # what passes everything leaves
    panel.grid()
