"""A clamp between numbers, composed: `where` alone says where a gradient goes. That holds at every
level of torch.func, in forward mode, and for derivatives of every order.

The function in gate.py takes what is dearer composed. `half` would need two masks, and takes longer
on large tensors; so does a call in place, which would write twice. In a graph, a compiler keeps the
result for the next operator anyway, and finds there what `where` would save. And torch.jit.trace
does not know a mask that is made inside an operator: it would keep it as a constant.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clampgrad._contract.table import INCLUSIVE, STRICT
from clampgrad._implementation.portable.forward import is_number, round_to_dtype
from clampgrad._implementation.portable.gate import is_in_a_graph
from clampgrad._torch.dispatcher import exclude_outer_levels
from clampgrad._torch.torchs_functions import TORCHS

where, eq, ge, gt, le, lt = TORCHS.where, torch.eq, torch.ge, torch.gt, torch.le, torch.lt

COMPOSED = {*STRICT, *INCLUSIVE}
NUMBER_TYPES = {float, int, type(None)}  # the quickest to tell


def is_composed(gradient: str, lo: Any, hi: Any) -> bool:
    """Whether an out-of-place call is composed."""
    if gradient not in COMPOSED or is_in_a_graph():
        return False
    return all([type(b) in NUMBER_TYPES or is_number(b) for b in (lo, hi)])


@lru_cache(1024, typed=True)
def cast_bounds(lo: Any, hi: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """Returns the bounds as the forward compares them, and whether there are two and in order.

    If one is NaN, so is the result, and torch accepts another that the dtype cannot hold: NaN
    stands for that one, too.
    """
    bounds: list[Any] = [lo, hi]
    if lo != lo or hi != hi:
        bounds = [None if b is None else math.nan for b in bounds]
    bounds = [None if b is None else round_to_dtype(b, dtype) for b in bounds]
    return *bounds, None not in bounds and bounds[0] <= bounds[1]


@lru_cache(1024, typed=True)
def as_tensors(lo: Any, hi: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """Returns the same as tensors, which torch compares in half of the time of numbers."""

    def tensor(bound: Any) -> Tensor | None:
        double = {"dtype": torch.float64, "device": "cpu"}
        return None if bound is None else torch.tensor(float(bound), **double).to(dtype)

    *numbers, in_order = cast_bounds(lo, hi, dtype)
    with exclude_outer_levels(), torch.inference_mode(False):
        return *map(tensor, numbers), in_order


def compose(x: Tensor, v: Tensor, y: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor | None:
    """Returns a clamp of x. y is its value, and v is x, detached.

    Returns None where the result would not have the strides of y: `where` chooses those of
    dimensions of size 1.
    """
    is_plain = type(v) is Tensor
    lo, hi, in_order = (as_tensors if is_plain else cast_bounds)(lo, hi, v.dtype)
    strict = gradient in STRICT
    if lo is None or hi is None:
        above, below = (gt, lt) if strict else (ge, le)
        passes = below(v, hi) if lo is None else above(v, lo)
    elif in_order and not strict:
        passes = eq(v, y)
    else:
        passes = gt(v, lo) & lt(v, hi)
    result = where(passes, x, y)
    return None if is_plain and result.stride() != y.stride() else result
