"""What is the gradient of a clamp exactly at its bounds? Ask torch, ask every convention."""

from functools import partial

import torch
import torch.nn.functional as F

import clampgrad

ZERO = torch.tensor(0.0)

# A function, as torch has it, as clampgrad has it, and where its bounds are.
FUNCTIONS = [
    ("relu(x)", F.relu, partial(clampgrad.clamp_min, min=0), [0]),
    ("relu6(x)", F.relu6, partial(clampgrad.clamp, min=0, max=6), [0, 6]),
    ("hardtanh(x, -1, 1)", F.hardtanh, partial(clampgrad.clamp, min=-1, max=1), [-1, 1]),
]
for name, op, arguments, points in [
    ("clamp(x, 0, 6)", "clamp", {"min": 0, "max": 6}, [0, 6]),
    ("clamp(x, -1, 1)", "clamp", {"min": -1, "max": 1}, [-1, 1]),
    ("clamp_min(x, 0)", "clamp_min", {"min": 0}, [0]),
    ("clamp_max(x, 6)", "clamp_max", {"max": 6}, [6]),
    ("maximum(x, tensor(0.))", "maximum", {"other": ZERO}, [0]),
]:
    both = (partial(getattr(library, op), **arguments) for library in (torch, clampgrad))
    FUNCTIONS.append((name, *both, points))


def gradient_at(points, function, **how):
    x = torch.tensor(points, dtype=torch.float32, requires_grad=True)
    return torch.autograd.grad(function(x, **how).sum(), x)[0].tolist()


def your_torch():
    """Each function at its bounds: by torch, and by clampgrad under each convention."""
    return [
        {
            "function": name,
            "x": points,
            "torch": gradient_at(points, builtin),
            **{how: gradient_at(points, ours, gradient=how) for how in clampgrad.EXACT},
        }
        for name, builtin, ours, points in FUNCTIONS
    ]


def every_convention():
    """clamp(x, 0, 6) below, at, between and above its bounds; the incoming gradient is 1."""
    points = [-1, 0, 3, 6, 7]
    clamp = partial(clampgrad.clamp, min=0, max=6)
    return {
        "function": "clamp(x, 0, 6)",
        "x": points,
        "gradient": {
            how: gradient_at(points, clamp, gradient=how) for how in clampgrad.CONVENTIONS
        },
    }
