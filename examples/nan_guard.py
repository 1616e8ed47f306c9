"""clamp(x, min=0).sqrt() at x = 0: does the guard prevent NaN?

The square root has an infinite slope at 0. A clamp that blocks at its bound stops it; a clamp that
passes the gradient at its bound returns infinity, and 0 * inf one step further back is NaN.

Caveats. The gradient of a norm at 0 is a matter of choice, and a guard with a margin, such as
clamp(min=1e-12), is better where the value matters. This example compares gradients only.
"""

import torch

import clampgrad
from clampgrad._tools.style import GREY, RED
from example import main


def slope(how, x):
    x = torch.tensor(x, requires_grad=True)
    clampgrad.clamp(x, min=0, gradient=how).sqrt().backward()
    return x.grad.item()


def weight_after_a_step(how):
    """A distance of a point to itself, in the usual way, and one step on what made it."""
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    point = torch.tensor([3.0, 4.0])
    squares = (weight * point - torch.tensor([3.0, 8.0])).square().sum()
    clampgrad.clamp(squares, min=0, gradient=how).sqrt().backward()
    return (weight - 0.1 * weight.grad).tolist()


def measure():
    names = clampgrad.CONVENTIONS
    return {
        "slope at 0": {how: str(slope(how, 0.0)) for how in names},
        "weight after a step": {how: str(weight_after_a_step(how)) for how in names},
    }


def draw(figure, data):
    # Infinity has a line of its own, above a gap in the axis.
    top, infinity = 6, 8
    right = torch.linspace(0, 1, 501)[1:]
    for panel, how in zip(figure.subplots(1, 2, sharey=True), ("inclusive", "min_norm")):
        panel.plot([-0.5, 0], [slope(how, -0.5), 0], color=RED)
        slopes = [(v, slope(how, v)) for v in right.tolist()]
        panel.plot(*zip(*((v, s) for v, s in slopes if s <= top)), color=RED)
        value = data["slope at 0"][how]
        panel.plot(0, infinity if value == "inf" else float(value), "o", color=RED)
        panel.axhspan(top, infinity - 1, color=GREY, alpha=0.14, linewidth=0)
        panel.set_title(f"{how}: {value.replace('inf', '∞').removesuffix('.0')} at 0")
        panel.set(xlabel="x", ylim=(-0.5, infinity + 0.5))
        panel.set_yticks([0, 2, 4, 6, infinity], ["0", "2", "4", "6", "∞"])
        panel.grid()
    figure.supylabel("slope of clamp(x, min=0).sqrt()", fontsize=9)


if __name__ == "__main__":
    main(measure, draw)
