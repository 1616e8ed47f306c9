"""clamp(x, min=0).sqrt() at x = 0: does the guard guard?

The square root has an infinite slope at 0. A clamp that blocks at its bound stops it; one that lets the
gradient through hands on an infinity, and 0 * inf one step further back is NaN.

Caveats. The gradient of a norm at 0 is a choice, not a fact, and a guard with room, such as
clamp(min=1e-12), is better where the value matters. Here only what comes back is compared.
"""

import torch

import clampgrad
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
    panel = figure.subplots()
    x = torch.linspace(-0.5, 1, 301)
    for how, style in {"inclusive": "-", "min_norm": "--"}.items():
        panel.plot(x.tolist(), [slope(how, v) for v in x.tolist()], style, label=how)
    panel.set(xlabel="x", ylabel="slope of clamp(x, min=0).sqrt()", ylim=(-0.5, 8))
    for how, y in {"inclusive": 7.5, "min_norm": 0}.items():
        panel.annotate(f"{how} at 0: {data['slope at 0'][how]}", (0, y), (0.1, y))
    panel.legend()


if __name__ == "__main__":
    main(measure, draw)
