"""Torch's own functions, as they are when this package is imported. Ours call these, because a
program may put ours in their place."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

CLAMP_FUNCTIONS = ("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_")
EXTREMA = ("maximum", "minimum", "fmax", "fmin")
TORCHS = SimpleNamespace(
    **{name: getattr(torch, name) for name in (*CLAMP_FUNCTIONS, *EXTREMA, "where")}
)
ACTIVATIONS = SimpleNamespace(relu=F.relu, relu6=F.relu6, hardtanh=F.hardtanh)
