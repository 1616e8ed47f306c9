"""Torch's own operators, of which every forward here is made, and their
calls under torch.func.vmap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from clampgrad._torch.dispatcher import exclude_outer_levels
from clampgrad._torch.surroundings import (
    KEEPS_WRITTEN_INPUTS,
    dispatch_modes_are_on,
    in_functionalization,
    in_transform,
    is_of_transform,
    share_memory,
)
from clampgrad._torch.torchs_functions import TORCHS

PLAIN = (Tensor, torch.nn.Parameter)


def torchs_own(name: str, x: Tensor, *others: Any, **out: Any) -> Tensor:
    """The operator of that name; a clamp by a number and a Tensor is a
    clamp by one after the other."""
    if len(others) == 2:
        given = [other for other in others if other is not None]
        if len(given) == 2 and isinstance(given[0], Tensor) != isinstance(given[1], Tensor):
            raised = TORCHS.clamp_min(x, given[0])
            if name.endswith("_"):  # x is written when nothing can fail any more
                return assign(x, others, TORCHS.clamp_max(raised, given[1]))
            return TORCHS.clamp_max(raised, given[1], **out)
        if name.startswith("clamp_m"):
            return getattr(TORCHS, name)(x, *given, **out)
    return getattr(TORCHS, name)(x, *others, **out)


def assign(x: Tensor, others: Sequence[Any], result: Tensor) -> Tensor:
    """Writes a result into x, where autograd does not look."""
    check_fits(x, others, result)
    return x.copy_(cast(result, x.dtype))


def check_fits(x: Tensor, others: Sequence[Any], result: Tensor) -> None:
    """copy_ checks all that an in-place operator does but three things: it broadcasts, it casts
    anything, and it does not know that the others were read."""
    if result.shape != x.shape or not torch.can_cast(result.dtype, x.dtype):
        return TORCHS.clamp_min_(x, result)  # which raises
    for other in others:
        if other is not x and isinstance(other, Tensor) and share_memory(x, other):
            # Writes x into x; where x and the other overlap in part, torch raises its error.
            never = torch.zeros((), dtype=torch.bool, device=x.device)
            TORCHS.where(never, other.data, x.data, out=x.data)


def is_number(bound: Any) -> bool:
    """Whether a bound is a number, of Python's or of NumPy's, or there is none."""
    return bound is None or isinstance(bound, (int, float)) or is_of_numpy(bound)


def is_of_numpy(bound: Any) -> bool:
    return isinstance(bound, Real) and hasattr(bound, "item")


def stays_unrounded(number: Any, dtype: torch.dtype) -> bool:
    """Inductor computes in float32 what has 16 bits, so a symbol differs there from what the
    forward stores, but for an integer that the dtype holds: a guard says that it does."""
    if dtype.itemsize > 2 or not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return False
    exact = int(2 / torch.finfo(dtype).eps)  # and all integers nearer to 0
    return not (
        isinstance(number, torch.SymInt) and number.node.has_hint() and -exact <= number <= exact
    )


def in_dtype(number: Any, dtype: torch.dtype) -> Any:
    """Rounded to it, but for what torch judges, beyond its range, and symbols that need
    no rounding or have no value."""
    if stays_unrounded(number, dtype) and number.node.has_hint():
        number = float(number)  # guards it
    if is_of_numpy(number):
        number = number.item()
    if not isinstance(number, (int, float)) or number == 0:  # a zero would lose its sign
        return number
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        return number  # no number of torch's
    return rounded(number, dtype)


@lru_cache(1024, typed=True)
def rounded(number: float, dtype: torch.dtype) -> float:
    kind = (
        torch.float64
        if isinstance(number, float)
        else torch.int64
        if number < 2**63
        else torch.uint64
    )
    with exclude_outer_levels():
        found = torch.tensor(number, dtype=kind, device="cpu").to(dtype).item()
    return number if math.isinf(found) else found


def is_written_input(x: Tensor) -> bool:
    """Whether x is an input of a graph that is being recorded, and the graph writes it
    (csrc/ops/tensors.cpp, Note [An input that a graph writes])."""
    if not KEEPS_WRITTEN_INPUTS or not in_functionalization() or in_transform():
        return False
    if x.layout != torch.strided:
        return False
    node, last = x.grad_fn, None
    while node is not None and node.next_functions:
        last, node = node.name(), node.next_functions[0][0]
    return node is not None and last == "CloneBackward0"


def copied(x: Tensor) -> Tensor:
    """What to read of an x that is then written: a copy of an input that a graph writes."""
    if not is_written_input(x):
        return x
    return x.flip(()) if x.dim() else x.unsqueeze(0).flip(0).squeeze(0)


def check_in_place(x: Tensor, *others: Any) -> None:
    """Raises where torch refuses to write what depends on the others to x. torch would check an
    autograd function only after it has written."""
    if type(x) not in PLAIN:
        return
    none = x.dim() + 1
    # torch asks whether x may be written before it sees that there is no such dimension.
    with suppress(IndexError, NotImplementedError), exclude_outer_levels():
        if x.requires_grad and not is_of_transform(x):
            x.cumsum_(none)  # vmap warns of it
            return
        leaf = x.is_floating_point() and not is_of_transform(x)
        wanted = leaf and any(isinstance(o, Tensor) and o.requires_grad for o in others)
        index = torch.empty(0, dtype=torch.long, device=x.device)
        source = torch.empty(0, dtype=x.dtype, device=x.device, requires_grad=wanted)
        x.index_add_(none, index, source)


def uncounted(x: Tensor) -> Tensor:
    """The same memory, whose changes do not count as versions of x."""
    return x.data if type(x) in PLAIN else x


def dtype_of(name: str, args: Sequence[Any]) -> torch.dtype:
    """The dtype of a result whose gradient is to be recorded."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if len({t.dtype for t in tensors}) == 1:
        return tensors[0].dtype
    with exclude_outer_levels():
        alike = [
            torch.empty((0,) * a.dim(), dtype=a.dtype, device="meta")
            if isinstance(a, Tensor)
            else a
            for a in args
        ]
        return torchs_own(name, *alike).dtype


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Like Tensor.to, which forgets that x is negated lazily where it runs below autograd and under
    a dispatch mode: it ends in copy_, which forgets it of what it writes, too."""
    return x if x.dtype == dtype else torch.ops.aten._to_copy(x, dtype=dtype)


def as_compared(args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """The arguments as the forward compares them: in the dtype of its result, to
    which numbers have been rounded.

    With a number that is NaN the result is NaN, and torch accepts a second number that the dtype
    cannot hold. NaN stands for that one too.
    """
    nan = next((a for a in args if isinstance(a, float) and math.isnan(a)), None)

    def compared(a: Any) -> Any:
        if isinstance(a, Tensor):
            return cast(a, dtype)
        a = a if nan is None else nan
        # In a graph, as a Tensor of the dtype, in which a symbol is rounded.
        if isinstance(a, (int, float)) and not dispatch_modes_are_on():
            return a
        return torch.scalar_tensor(a, dtype=dtype, device=args[0].device)

    return [compared(a) for a in args if a is not None]


def batch_at(to: int, args: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The arguments of the same call one level down, where the batch is a dimension."""
    ranks = [a.dim() - (d is not None) if isinstance(a, Tensor) else -1 for a, d in zip(args, dims)]

    def moved(a: Any, d: int | None, rank: int) -> Any:
        if d is None and (to == 0 or rank <= 0):
            return a
        a = a.unsqueeze(0) if d is None else a.movedim(d, 0)
        return a[(slice(None), *(None,) * (max(ranks) - rank))].movedim(0, to)

    return list(map(moved, args, dims, ranks))
