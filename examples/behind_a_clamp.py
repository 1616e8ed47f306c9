"""A loss behind a clamp, sin(pi * clamp(x, -1, 1)) + 1: what gradient
does x receive outside [-1, 1]?

The minimum is at x = -0.5. From outside, an exact gradient is 0 and descent cannot start.
"""

from functools import partial

import clampgrad
from clampgrad._tools.plot import curves


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
            name: [round(v, 6) for v in gradients(how)[index].tolist()]
            for name, how in asked.items()
        },
    }


def gradients(how):
    return curves(partial(clampgrad.clamp, min=-1, max=1, **how))[2]
