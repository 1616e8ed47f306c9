"""What is the gradient of a clamp exactly at its bounds? Ask torch, ask every convention."""

import torch
import torch.nn.functional as F

import clampgrad

# The other three conventions all give 1 at a bound, and differ outside.
EXACT = ("min_norm", "inclusive", "joint", "half")

CLAMPS = {
    "clamp_min(x, 0)": lambda x, **how: clampgrad.clamp_min(x, 0, **how),
    "clamp_max(x, 6)": lambda x, **how: clampgrad.clamp_max(x, 6, **how),
    "clamp(x, 0, 6)": lambda x, **how: clampgrad.clamp(x, 0, 6, **how),
    "clamp(x, -1, 1)": lambda x, **how: clampgrad.clamp(x, -1, 1, **how),
}


def relu_by_maximum(x):
    return torch.maximum(x, torch.tensor(0.0))


# A function of torch, which of the clamps above is the same function, and where its bounds are.
BUILT_IN = [
    ("relu(x)", F.relu, "clamp_min(x, 0)", [0]),
    ("clamp_min(x, 0)", lambda x: torch.clamp_min(x, 0), "clamp_min(x, 0)", [0]),
    ("maximum(x, tensor(0.))", relu_by_maximum, "clamp_min(x, 0)", [0]),
    ("clamp_max(x, 6)", lambda x: torch.clamp_max(x, 6), "clamp_max(x, 6)", [6]),
    ("relu6(x)", F.relu6, "clamp(x, 0, 6)", [0, 6]),
    ("clamp(x, 0, 6)", lambda x: torch.clamp(x, 0, 6), "clamp(x, 0, 6)", [0, 6]),
    ("hardtanh(x, -1, 1)", F.hardtanh, "clamp(x, -1, 1)", [-1, 1]),
    ("clamp(x, -1, 1)", lambda x: torch.clamp(x, -1, 1), "clamp(x, -1, 1)", [-1, 1]),
]


def gradient_at(x, function, **how):
    x = torch.tensor(float(x), requires_grad=True)
    return torch.autograd.grad(function(x, **how), x)[0].item()


def your_torch():
    """Each function of torch at its bounds, beside the same function under each convention."""
    return [
        {
            "function": name,
            "x": bounds,
            "torch": [gradient_at(x, function) for x in bounds],
            **{how: [gradient_at(x, CLAMPS[same], gradient=how) for x in bounds] for how in EXACT},
        }
        for name, function, same, bounds in BUILT_IN
    ]


def every_convention():
    """clamp(x, 0, 6) below, at, between and above its bounds; the incoming gradient is 1."""
    points = [-1, 0, 3, 6, 7]
    clamp = CLAMPS["clamp(x, 0, 6)"]
    return {
        "function": "clamp(x, 0, 6)",
        "x": points,
        "gradient": {
            how: [gradient_at(x, clamp, gradient=how) for x in points]
            for how in clampgrad.CONVENTIONS
        },
    }
