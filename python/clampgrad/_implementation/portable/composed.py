"""Exact conventions between numbers, composed: `where` alone says where a gradient goes. It holds at
every level of torch.func, in forward mode, and for derivatives of every order.

A graph that is recorded has gate.py's function instead: a compiler keeps the result of a clamp for
the next operator anyway, and finds there what `where` would save.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from clampgrad._contract.table import EXACT, STRICT
from clampgrad._implementation.portable.forward import in_dtype, is_number

Forward: TypeAlias = Callable[..., Tensor]  # of x and the two bounds, None for one that is missing

# As they are now: a program may put clampgrad's functions in the place of torch's.
add, where, masked_fill_ = torch.Tensor.add_, torch.where, torch.Tensor.masked_fill_
eq, ge, gt, le, lt = torch.eq, torch.ge, torch.gt, torch.le, torch.lt


def is_composed(gradient: str, lo: Any, hi: Any, in_place: bool) -> bool:
    """Whether a call can be. What is written has one gradient where `half` has a part of it: what
    it was before would need another path, by which memory that overlaps itself counts twice."""
    exact = gradient in EXACT and not (in_place and gradient == "half")
    return exact and is_number(lo) and is_number(hi)


@lru_cache(1024, typed=True)
def comparable(lo: Any, hi: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """The bounds as the forward compares them. If one is NaN, so is the result, and torch accepts
    another that the dtype cannot hold: NaN stands for that one, too."""
    if lo != lo or hi != hi:
        return tuple(None if bound is None else math.nan for bound in (lo, hi))
    return in_dtype(lo, dtype), in_dtype(hi, dtype)


def between(v: Tensor, y: Tensor, lo: Any, hi: Any, strictly: bool) -> Tensor:
    """Where v, of which y is the clamp, is between the bounds."""
    if lo is None or hi is None:
        above, below = (gt, lt) if strictly else (ge, le)
        return below(v, hi) if lo is None else above(v, lo)
    if strictly:
        return gt(v, lo) & lt(v, hi)
    return eq(v, y) if lo <= hi else ge(v, lo) & le(v, hi)  # of which the second is nowhere


def composed(forward: Forward, x: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor:
    """A clamp. `forward` computes its values, and is not differentiated."""
    v = x.detach()
    y = forward(v, lo, hi)  # or its error
    lo, hi = comparable(lo, hi, v.dtype)
    if gradient == "half":
        y = where(between(v, y, lo, hi, strictly=False), shared(x, v, y, lo, hi), y)
    return where(between(v, y, lo, hi, gradient in (*STRICT, "half")), x, y)


def shared(x: Tensor, v: Tensor, y: Tensor, lo: Any, hi: Any) -> Tensor:
    """y, with half of the gradient of x, or a quarter where the bounds are equal. Of the two zeros
    it keeps the sign."""
    zero = v - x
    if math.inf in (lo, hi) or -math.inf in (lo, hi):
        zero = where(v.isinf(), -x, zero)
    return y - zero / (4 if lo == hi else 2)


def composed_in_place(forward: Forward, x: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor:
    """The same, written into x. Added to -0.0, every number remains what it is."""
    v = x.detach()
    y = forward(v, lo, hi)
    lo, hi = comparable(lo, hi, v.dtype)
    passes = between(v, y, lo, hi, gradient in STRICT)
    return add(masked_fill_(x, ~passes, -0.0), masked_fill_(y, passes, -0.0))
