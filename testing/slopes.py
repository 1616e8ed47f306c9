"""Which pin holds: the slope of torch.clamp, and what it is under each pin."""

import torch

from testing.releases import RELEASED


def slope(f=lambda x: torch.clamp(x, 0, 1), at=(0.0, 2.0)):
    """The slope of torch.clamp at its lower bound and beyond the upper
    one, which differ between pins."""
    x = torch.tensor(at, requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()


# Stated, not asked for: torch starts the threads of its devices at the first backward, and the
# device of the tests is not known yet where this is imported.
STOCK_SLOPES = [1, 0] if RELEASED == "inclusive" else [0, 0]
HALF_SLOPES = [0.5, 0]
STRAIGHT_THROUGH_SLOPES = [1, 1]
# By pin.
SLOPES = {None: STOCK_SLOPES, "half": HALF_SLOPES, "straight_through": STRAIGHT_THROUGH_SLOPES}

# The beginning of scripts about it.
SLOPE_SCRIPT = """
import sys
import torch
def slope(f):
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()
def clamp(x): return torch.clamp(x, 0, 1) * 1
HALF_SLOPES, ALL = [0.5, 0.0], [1.0, 0.0]
"""
