"""A loss behind a clamp, sin(pi * clamp(x, -1, 1)) + 1: what does x hear of it outside [-1, 1]?

The minimum is at x = -0.5. From outside, an exact gradient is 0 and descent cannot start.
"""

import math

import torch

import clampgrad

# Hundredths, so that the bounds themselves are among the points.
X = torch.arange(-200, 201) / 100


def curves(**how):
    """The clamp, the loss and the gradient of the loss at every point of X."""
    x = X.clone().requires_grad_()
    y = clampgrad.clamp(x, -1, 1, **how)
    loss = torch.sin(math.pi * y) + 1
    (gradient,) = torch.autograd.grad(loss, x, torch.ones_like(loss))
    return y.detach(), loss.detach(), gradient


def measure():
    """The gradient outside, at and inside the bounds."""
    points = [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]
    index = [round(100 * x) + 200 for x in points]
    asked = {how: {"gradient": how} for how in clampgrad.CONVENTIONS}
    for how in ("with_grad", "restoring"):
        asked[f"{how}, maximize"] = {"gradient": how, "maximize": True}
    return {
        "x": points,
        "gradient": {
            # Six digits: the last bit of a sine is not the same on every machine.
            name: [round(v, 6) for v in curves(**how)[2][index].tolist()]
            for name, how in asked.items()
        },
    }
