"""The calls of torch's own operators, which compute every forward, also under torch.func.vmap."""

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
from clampgrad._torch.rounding import cast_number
from clampgrad._torch.surroundings import (
    KEEPS_WRITTEN_INPUTS,
    dispatch_modes_are_on,
    in_transform,
    is_functionalizing,
    is_of_transform,
    share_memory,
)
from clampgrad._torch.torchs_functions import TORCHS

TENSOR_TYPES = (Tensor, torch.nn.Parameter)


def call_torch(name: str, x: Tensor, *others: Any, **out: Any) -> Tensor:
    """Calls torch's operator of that name. A clamp by a number and a Tensor is a clamp by one and
    then by the other."""
    if len(others) == 2:
        bounds = [other for other in others if other is not None]
        if len(bounds) == 2 and isinstance(bounds[0], Tensor) != isinstance(bounds[1], Tensor):
            raised = TORCHS.clamp_min(x, bounds[0])
            if name.endswith("_"):  # x is written when nothing can fail any more
                return assign(x, others, TORCHS.clamp_max(raised, bounds[1]))
            return TORCHS.clamp_max(raised, bounds[1], **out)
        if name.startswith("clamp_m"):
            return getattr(TORCHS, name)(x, *bounds, **out)
    return getattr(TORCHS, name)(x, *others, **out)


def assign(x: Tensor, others: Sequence[Any], result: Tensor) -> Tensor:
    """Writes a result into x, where autograd does not look."""
    check_can_hold_result(x, others, result)
    return x.copy_(cast(result, x.dtype))


def check_can_hold_result(x: Tensor, others: Sequence[Any], result: Tensor) -> None:
    """Raises torch's error where an in-place operator would and copy_ does not: copy_ broadcasts,
    casts to any dtype, and does not know which other tensors were read."""
    if result.shape != x.shape or not torch.can_cast(result.dtype, x.dtype):
        return TORCHS.clamp_min_(x, result)  # which raises
    for other in others:
        if other is not x and isinstance(other, Tensor) and share_memory(x, other):
            # Writes x into x; where x and the other overlap in part, torch raises its error.
            never = torch.zeros((), dtype=torch.bool, device=x.device)
            TORCHS.where(never, other.data, x.data, out=x.data)


def is_number(bound: Any) -> bool:
    """Whether a bound is a number of Python or of NumPy, or None."""
    return bound is None or isinstance(bound, (int, float)) or is_of_numpy(bound)


def is_of_numpy(bound: Any) -> bool:
    return isinstance(bound, Real) and hasattr(bound, "item")


def is_left_unrounded(number: Any, dtype: torch.dtype) -> bool:
    """Whether Inductor would compare a symbolic bound unrounded: it computes 16-bit values in
    float32. False for an integer that the dtype holds exactly, which the comparison here guards."""
    if dtype.itemsize > 2 or not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return False
    exact = int(2 / torch.finfo(dtype).eps)  # and all integers nearer to 0
    return not (
        isinstance(number, torch.SymInt) and number.node.has_hint() and -exact <= number <= exact
    )


def round_to_dtype(number: Any, dtype: torch.dtype) -> Any:
    """Rounds a number to a dtype. Returns a number beyond its range, which torch judges, and a
    symbol that needs no rounding or has no value, as they are."""
    if is_left_unrounded(number, dtype) and number.node.has_hint():
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
    with exclude_outer_levels():
        result = cast_number(number, dtype).item()
    return number if math.isinf(result) else result


def is_mutated_graph_input(x: Tensor) -> bool:
    """Whether x is an input that the graph being captured mutates.

    The compiled implementation has the same test: is_mutated_graph_input() in csrc/ops/tensors.cpp,
    where Note [An input that a graph writes] explains it. Change both.
    """
    if not KEEPS_WRITTEN_INPUTS or not is_functionalizing() or in_transform():
        return False
    if x.layout != torch.strided:
        return False
    node, last = x.grad_fn, None
    while node is not None and node.next_functions:
        last, node = node.name(), node.next_functions[0][0]
    return node is not None and last == "CloneBackward0"


def copy_if_mutated(x: Tensor) -> Tensor:
    """Returns a copy of x if x is an input that the graph mutates, else x."""
    if not is_mutated_graph_input(x):
        return x
    return x.flip(()) if x.dim() else x.unsqueeze(0).flip(0).squeeze(0)


def check_in_place(x: Tensor, *others: Any) -> None:
    """Raises torch's error if x must not be overwritten by a result that depends on the others.
    torch would check an autograd function only after it has written."""
    if type(x) not in TENSOR_TYPES:
        return
    none = x.dim() + 1
    # torch asks whether x may be written before it sees that there is no such dimension.
    with suppress(IndexError, NotImplementedError), exclude_outer_levels():
        if x.requires_grad and not is_of_transform(x):
            x.cumsum_(none)  # vmap warns of it
            return
        leaf = x.is_floating_point() and not is_of_transform(x)
        needs_grad = leaf and any(isinstance(o, Tensor) and o.requires_grad for o in others)
        index = torch.empty(0, dtype=torch.long, device=x.device)
        source = torch.empty(0, dtype=x.dtype, device=x.device, requires_grad=needs_grad)
        x.index_add_(none, index, source)


def without_version_counter(x: Tensor) -> Tensor:
    """Returns a tensor of the same memory, whose changes do not count as versions of x."""
    return x.data if type(x) in TENSOR_TYPES else x


def dtype_of(name: str, args: Sequence[Any]) -> torch.dtype:
    """Returns the dtype of the result, of a call that is recorded."""
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
        return call_torch(name, *alike).dtype


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Casts x, also where Tensor.to would be wrong: below autograd and under a dispatch mode, it
    ignores that x is negated lazily, as does copy_, in which it ends."""
    return x if x.dtype == dtype else torch.ops.aten._to_copy(x, dtype=dtype)


def cast_for_comparison(args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """Casts the arguments to the dtype in which the forward compares them: that of its result, to
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
    """Returns the arguments of the same call one level down, where the batch is a dimension."""
    ranks = [a.dim() - (d is not None) if isinstance(a, Tensor) else -1 for a, d in zip(args, dims)]

    def moved(a: Any, d: int | None, rank: int) -> Any:
        if d is None and (to == 0 or rank <= 0):
            return a
        a = a.unsqueeze(0) if d is None else a.movedim(d, 0)
        return a[(slice(None), *(None,) * (max(ranks) - rank))].movedim(0, to)

    return list(map(moved, args, dims, ranks))
