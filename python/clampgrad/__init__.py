"""One forward and a named, pinned gradient for clamp, on every release of PyTorch."""

from clampgrad.functional import (
    CONVENTIONS,
    clamp,
    clamp_,
    clamp_max,
    clamp_max_,
    clamp_min,
    clamp_min_,
    clamp_with_grad,
    clip,
    clip_,
    fmax,
    fmin,
    maximum,
    minimum,
)
from clampgrad.pin import override

__all__ = [
    "CONVENTIONS",
    "clamp",
    "clamp_",
    "clamp_max",
    "clamp_max_",
    "clamp_min",
    "clamp_min_",
    "clamp_with_grad",
    "clip",
    "clip_",
    "fmax",
    "fmin",
    "maximum",
    "minimum",
    "override",
]
