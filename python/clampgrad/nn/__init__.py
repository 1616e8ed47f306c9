"""Modules with a named gradient, and `convert`, which gives a model's modules one.

`ReLU`, `ReLU6` and `Hardtanh` inherit from the modules of the same names in torch.nn: they have the
same arguments (but the deprecated `min_value` and `max_value`) and state_dict, and the keyword
`gradient`. With the default, `min_norm`, their
gradient is that of torch except at NaN (where `min_norm` gives 0, and torch gives g or 0), and they
save one bit per element for backward instead of a whole Tensor.
"""

from clampgrad.nn.conversion import conversions, convert, undo
from clampgrad.nn.modules import Clamp, Hardtanh, ReLU, ReLU6

__all__ = ["Clamp", "Hardtanh", "ReLU", "ReLU6", "conversions", "convert", "undo"]


def __dir__() -> list[str]:
    return __all__
