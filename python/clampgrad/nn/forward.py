"""The forward of a converted module: a function of this package in place of torch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clampgrad._implementation import clamp_plain
from clampgrad._torch.modules import replace_forwards
from clampgrad.activations import hardtanh, relu
from clampgrad.functional import Gradient

# Except at NaN, it has the gradients of torch's modules.
GRADIENT: Gradient = "min_norm"
# Of the dtypes in which torch's hardtanh compares as float32: the significant bits of a number.
SIGNIFICANT_BITS = {torch.bfloat16: 8, torch.float16: 11}
RANGES = {dtype: (torch.finfo(dtype).tiny, torch.finfo(dtype).max) for dtype in SIGNIFICANT_BITS}


def call_function(module: Any, input: Tensor, inplace: bool) -> Tensor:
    """Computes a ReLU, ReLU6 or Hardtanh of torch by the function of this package."""
    if isinstance(module, nn.ReLU):
        return relu(input, inplace, gradient=GRADIENT)
    return hardtanh(input, module.min_val, module.max_val, inplace, gradient=GRADIENT)


def is_rounded(bound: float, dtype: torch.dtype) -> bool:
    """Whether a bound is no number of a 16-bit dtype. Computed with floats alone, so that it can be
    traced: a number has few significant bits if its upper part, by Veltkamp's splitting, is all."""
    if bound == 0 or abs(bound) == float("inf"):
        return False
    least, most = RANGES[dtype]
    scaled = bound * (2.0 ** (53 - SIGNIFICANT_BITS[dtype]) + 1)
    return not least <= abs(bound) <= most or scaled - (scaled - bound) != bound


def has_rounded_bound(module: Any, input: Any) -> bool:
    """Whether torch's own function must run: it compares with the bound before it is rounded, and
    so has another gradient where an element is at the rounded one."""
    dtype = getattr(input, "dtype", None)  # of anything, which torch refuses
    if dtype not in SIGNIFICANT_BITS:
        return False
    return is_rounded(module.min_val, dtype) or is_rounded(module.max_val, dtype)


class ConvertedForward:
    """Runs a function of this package for a module of torch, which saves a bit per element.

    The module holds it in an attribute. So it is saved with the module, and loading a whole model
    imports this package.
    """

    def __init__(self, fewer_bytes: int | None = None) -> None:
        self.fewer_bytes = fewer_bytes  # None if they were not measured
        replace_forwards()

    def __call__(self, module: Any, input: Tensor) -> Tensor:
        # For torch's relu a compiler saves nothing but the result, for our in-place relu a mask.
        if isinstance(module, nn.ReLU) and torch.compiler.is_compiling():
            return F.relu(input, module.inplace)
        if not isinstance(module, nn.ReLU) and has_rounded_bound(module, input):
            return F.hardtanh(input, module.min_val, module.max_val, module.inplace)
        return call_function(module, input, module.inplace)

    def call_plain(self, module: Any, input: Tensor) -> Tensor | None:
        if isinstance(module, nn.ReLU):
            return clamp_plain(input, 0, None, module.inplace, GRADIENT, False)
        lo, hi = module.min_val, module.max_val
        if hi is None or has_rounded_bound(module, input):  # torch refuses None
            return None
        return clamp_plain(input, lo, hi, module.inplace, GRADIENT, False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConvertedForward, (self.fewer_bytes,)

    def extra_repr(self) -> str:
        return f"gradient={GRADIENT!r}"
