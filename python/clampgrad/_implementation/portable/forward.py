"""Torch's own operators, which every forward here is, and what torch.func.vmap asks of a call of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clampgrad._torch.surroundings import in_levels, without_dispatch_modes
from clampgrad._torch.tensors import made_again, share_memory


def torchs_own(name: str, x: Tensor, *others: Any, **out: Any) -> Tensor:
    """The operator of that name; a clamp by a number and a Tensor is a clamp by one after the other."""
    given = [other for other in others if other is not None]
    if len({isinstance(other, Tensor) for other in given}) == 2:
        if name.endswith("_"):  # x is written when nothing can fail any more
            return assign(x, others, torch.clamp_max(torch.clamp_min(x, given[0]), given[1]))
        return torch.clamp_max(torch.clamp_min(x, given[0]), given[1], **out)
    return getattr(torch, name)(x, *(given if name.startswith("clamp_m") else others), **out)


def to_be_written(x: Tensor) -> Tensor:
    """What an operator in place differentiates. A view is made again from its base, because torch gives a
    view that it writes another node, and what hangs on the one before (its hooks) is not called."""
    return x if in_levels() else made_again(x)


def assign(x: Tensor, others: Sequence[Any], result: Tensor) -> Tensor:
    """Writes a result into x. copy_ checks all that an in-place operator does but three things: it broadcasts, it
    casts anything, and it does not know that the others were read."""
    if result.shape != x.shape or not torch.can_cast(result.dtype, x.dtype):
        return torch.clamp_min_(x, result)  # which raises
    for other in others:
        if other is not x and isinstance(other, Tensor) and share_memory(x, other):
            # Writes x into x; where x and the other overlap in part, torch raises its error.
            never = torch.zeros((), dtype=torch.bool, device=x.device)
            torch.where(never, other.data, x.data, out=x.data)
    return x.copy_(result)


def in_dtype(number: Any, dtype: torch.dtype) -> Any:
    """Rounded to it. A number beyond its range stays, for torch to judge, and one that a graph stands for."""
    if not isinstance(number, (int, float)):
        return number
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        return number  # no number of torch's
    with without_dispatch_modes():
        rounded = torch.tensor(number, dtype=torch.float64, device="cpu").to(dtype).item()
    return number if math.isinf(rounded) else rounded


def as_compared(args: Sequence[Any], y: Tensor) -> list[Tensor]:
    """The arguments as the forward compares them: in the dtype of its result y, which Inductor would not
    round a number to.

    With a number that is NaN the result is NaN, and torch accepts a second number that the dtype cannot
    hold. NaN stands for that one too.
    """
    nan = next((a for a in args if isinstance(a, float) and math.isnan(a)), None)
    return [
        a.to(y.dtype)
        if isinstance(a, Tensor)
        else torch.scalar_tensor(
            in_dtype(a, y.dtype) if nan is None else nan, dtype=y.dtype, device=y.device
        )
        for a in args
        if a is not None
    ]


def batch_first(name: str, args: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The arguments of the same call one level down, where the batch is their first dimension."""
    ranks = [a.dim() - (d is not None) if isinstance(a, Tensor) else -1 for a, d in zip(args, dims)]
    if len({a.dtype for a in args if isinstance(a, Tensor)}) > 1:
        # A Tensor of no dimension takes less part in type promotion. With its batch dimension it would take
        # full part, so the dtype is found without the batch.
        alike = [
            torch.empty((0,) * rank, dtype=a.dtype, device="meta") if rank >= 0 else a
            for a, rank in zip(args, ranks)
        ]
        dtype = torchs_own(name, *alike).dtype
        args = [a.to(dtype) if isinstance(a, Tensor) else a for a in args]
    return [
        a if d is None else a.movedim(d, 0)[(slice(None), *(None,) * (max(ranks) - rank))]
        for a, d, rank in zip(args, dims, ranks)
    ]
