"""Modules with a named gradient, and functions that change the modules of a model.

`ReLU`, `ReLU6` and `Hardtanh` inherit from the modules of the same names in torch.nn: they have the
same arguments (but the deprecated `min_value` and `max_value`) and state_dict, and the keyword
`gradient`. With the default, `min_norm`, their gradient is that of torch except at NaN (where
`min_norm` gives 0, and torch gives g or 0), and they save one bit per element for backward instead
of a whole Tensor.

`convert` makes the modules of a model save less, and changes no gradient; `set_gradient` gives them
a named gradient. `conversions` reports what both did, and `undo` reverts it.
"""

from clampgrad.nn.bookkeeping import conversions, undo
from clampgrad.nn.conversion import convert
from clampgrad.nn.gradients import set_gradient
from clampgrad.nn.modules import Clamp, Hardtanh, ReLU, ReLU6

__all__ = ["Clamp", "Hardtanh", "ReLU", "ReLU6", "conversions", "convert", "set_gradient", "undo"]


def __dir__() -> list[str]:
    return __all__
