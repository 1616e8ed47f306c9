"""The forward of a converted module: a function of this package in place of torch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clampgrad._implementation import clamp_plain
from clampgrad._torch.modules import change_modules
from clampgrad.activations import hardtanh, relu
from clampgrad.functional import Gradient

# Except at NaN, it has the gradients of torch's modules.
GRADIENT: Gradient = "min_norm"


def call_function(module: Any, input: Tensor, inplace: bool) -> Tensor:
    """Computes a ReLU, ReLU6 or Hardtanh of torch by the function of this package."""
    if isinstance(module, nn.ReLU):
        return relu(input, inplace, gradient=GRADIENT)
    return hardtanh(input, module.min_val, module.max_val, inplace, gradient=GRADIENT)


class ConvertedForward:
    """Runs a function of this package for a module of torch, which saves a bit per element.

    The module holds it in an attribute. So it is saved with the module, and loading a whole model
    imports this package.
    """

    def __init__(self, fewer_bytes: int | None = None) -> None:
        self.fewer_bytes = fewer_bytes  # None if they were not measured
        change_modules()

    def __call__(self, module: Any, input: Tensor) -> Tensor:
        # For torch's relu a compiler saves nothing but the result, for our in-place relu a mask.
        if isinstance(module, nn.ReLU) and torch.compiler.is_compiling():
            return F.relu(input, module.inplace)
        return call_function(module, input, module.inplace)

    def call_plain(self, module: Any, input: Tensor) -> Tensor | None:
        if isinstance(module, nn.ReLU):
            return clamp_plain(input, 0, None, module.inplace, GRADIENT, False)
        lo, hi = module.min_val, module.max_val
        if hi is None:  # which torch refuses
            return None
        return clamp_plain(input, lo, hi, module.inplace, GRADIENT, False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConvertedForward, (self.fewer_bytes,)

    def extra_repr(self) -> str:
        return f"gradient={GRADIENT!r}"
