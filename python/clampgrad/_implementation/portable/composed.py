"""Exact conventions between numbers, composed: `where` alone says where a gradient goes. That holds
at every level of torch.func, in forward mode, and for derivatives of every order.

A graph that is recorded has gate.py's function instead: a compiler keeps the result of a clamp for
the next operator anyway, and finds there what `where` would save.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clampgrad._contract.table import EXACT, STRICT
from clampgrad._implementation.portable.forward import in_dtype, is_number
from clampgrad._implementation.portable.gate import is_in_a_graph
from clampgrad._torch.dispatcher import at_this_level
from clampgrad._torch.torchs_functions import TORCHS

where = TORCHS.where
eq, ge, gt, le, lt = torch.eq, torch.ge, torch.gt, torch.le, torch.lt


def is_composed(gradient: str, x: Tensor, lo: Any, hi: Any, in_place: bool) -> bool:
    """Whether a call can be."""
    if gradient not in EXACT or not (is_number(lo) and is_number(hi)) or is_in_a_graph():
        return False
    # A part of what was there before would come by another path, which counts memory that overlaps
    # itself twice. Torch fills no jagged tensor, and warns before it refuses what is expanded.
    whole = gradient != "half" and x.layout == torch.strided and 0 not in x.stride()
    return whole or not in_place


class Bounds(NamedTuple):
    """Bounds as the forward compares them."""

    lo: Any
    hi: Any
    are_ordered: bool  # both are there, and none is above the other
    are_equal: bool
    are_finite: bool


@lru_cache(1024, typed=True)
def bounds(lo: Any, hi: Any, dtype: torch.dtype, as_tensors: bool) -> Bounds:
    """Rounded to the dtype. As tensors, which torch compares in half of the time of numbers.

    If one is NaN, so is the result, and torch accepts another that the dtype cannot hold: NaN
    stands for that one, too.
    """
    is_nan = lo != lo or hi != hi
    given = [None if b is None else math.nan if is_nan else in_dtype(b, dtype) for b in (lo, hi)]
    numbers = [b for b in given if b is not None]
    ordered = len(numbers) == 2 and numbers[0] <= numbers[1]
    if as_tensors:
        with at_this_level(), torch.inference_mode(False):
            given = [None if b is None else tensor(float(b)).to(dtype) for b in given]
    equal = len(numbers) == 2 and numbers[0] == numbers[1]
    return Bounds(*given, ordered, equal, not any(map(math.isinf, numbers)))


def tensor(number: float) -> Tensor:
    return torch.tensor(number, dtype=torch.float64, device="cpu")


def between(v: Tensor, y: Tensor, b: Bounds, strictly: bool) -> Tensor:
    """Where v, of which y is the clamp, is between the bounds."""
    if b.lo is None or b.hi is None:
        above, below = (gt, lt) if strictly else (ge, le)
        return below(v, b.hi) if b.lo is None else above(v, b.lo)
    if b.are_ordered and not strictly:
        return eq(v, y)
    return gt(v, b.lo) & lt(v, b.hi)


def compose(x: Tensor, y: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor:
    """A clamp of x, of which y is the value."""
    v = x.detach()
    b = bounds(lo, hi, v.dtype, type(v) is Tensor)
    if gradient == "half":
        y = where(between(v, y, b, strictly=False), shared(x, v, y, b), y)
    return where(between(v, y, b, strictly=gradient in (*STRICT, "half")), x, y)


def shared(x: Tensor, v: Tensor, y: Tensor, b: Bounds) -> Tensor:
    """y, with half of the gradient of x, or a quarter where the bounds are equal. Of the two zeros
    it keeps the sign."""
    zero = v - x if b.are_finite else where(v.isinf(), -x, v - x)
    return y - zero / (4 if b.are_equal else 2)


def compose_in_place(x: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor:
    """The same, written into x. Added to -0.0, every number remains what it is."""
    v = x.detach()
    y = TORCHS.clamp(v, lo, hi)
    b = bounds(lo, hi, v.dtype, type(v) is Tensor)
    passes = between(v, y, b, strictly=gradient in STRICT)
    return x.masked_fill_(~passes, -0.0).add_(y.masked_fill_(passes, -0.0))
