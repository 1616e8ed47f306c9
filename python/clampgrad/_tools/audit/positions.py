"""The position of an element among its bounds, as one byte."""

import math
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clampgrad._tools.audit.calls import Operands
from clampgrad._torch.rounding import cast_number
from clampgrad._torch.surroundings import hidden_from_modes, in_transform

# The bits of a position. The bounds alone decide the last three.
ABOVE_LO, AT_LO, ABOVE_HI, AT_HI, NAN, EMPTY, SINGLE, NAN_LO = (1 << i for i in range(8))
BOUND_BITS = EMPTY | SINGLE | NAN_LO
NAN_HI = EMPTY | SINGLE  # no interval is both


def find_positions(x: Tensor, lo: Tensor | None, hi: Tensor | None) -> Tensor:
    """Returns one byte per element of the result: how it compares with its bounds."""
    # Numbers are on the CPU, where also a Tensor without dimensions may be.
    devices = [v.device for v in (x, lo, hi) if v is not None]
    device = next((d for d in devices if d.type != "cpu"), x.device)
    masks = []
    if in_transform() or x.sum().isnan():  # the sum is NaN if an element is, and takes less time
        masks += [(x.isnan(), NAN)]
    if lo is not None:
        masks += [(x > lo, ABOVE_LO), (x == lo, AT_LO), (lo.isnan(), NAN_LO)]
    if hi is not None:
        masks += [(x > hi, ABOVE_HI), (x == hi, AT_HI), (hi.isnan(), NAN_HI)]
    if lo is not None and hi is not None:
        masks += [(lo > hi, EMPTY), (lo == hi, SINGLE)]
    if in_transform():  # where nothing can be asked of a mask, and each may have a batch
        parts = [m.to(device, torch.uint8) * bit for m, bit in masks]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0, dtype=torch.uint8)
    shape = torch.broadcast_shapes(*(mask.shape for mask, _ in masks))
    positions = torch.zeros(shape, dtype=torch.uint8, device=device)
    for mask, bit in masks:
        if mask.dim() or mask:  # for numbers, most masks are False
            positions.add_(mask.view(torch.uint8), alpha=bit)
    return positions


def cast_for_comparison(operands: Operands, dtype: torch.dtype) -> tuple[Any, ...]:
    """Returns the operands as the kernel compares them: in the dtype of the result."""

    def cast(operand: Any) -> Tensor:
        is_tensor = isinstance(operand, Tensor)
        return operand.detach().to(dtype) if is_tensor else cast_number(operand, dtype)

    return tuple(None if operand is None else cast(operand) for operand in operands)


def round_to_dtype(bound: float, dtype: torch.dtype) -> float:
    """Returns a number rounded to a dtype."""
    return cast_number(bound, dtype).double().item()


def shortest_digits(number: float, dtype: torch.dtype) -> str:
    """Returns a number of a dtype, in the fewest digits that read back as the same number."""
    texts = (f"{number:.{digits}g}" for digits in range(1, 18))
    return next((t for t in texts if round_to_dtype(float(t), dtype) == number), f"{number!r}")


@lru_cache(1024)
def find_bound_bits(dtype: torch.dtype, lo: float | None, hi: float | None) -> int:
    """Returns the bits of a position that two number bounds decide."""
    return int(find_positions(*cast_for_comparison((torch.zeros(1), lo, hi), dtype))) & BOUND_BITS


@lru_cache
def example_elements(has_lo: bool, has_hi: bool) -> dict[int, Operands]:
    """Returns one example, an element with its bounds, for every possible position."""
    bounds = {(0.0 if has_lo else None, hi if has_hi else None) for hi in (2.0, 0.0, -2.0)}
    bounds |= set(
        product([torch.nan, 0.0] if has_lo else [None], [torch.nan, 2.0] if has_hi else [None])
    )
    examples: dict[int, Operands] = {}
    with hidden_from_modes():
        for (lo, hi), x in product(sorted(bounds, key=str), (-3.0, -2, -1, 0, 1, 2, 3, torch.nan)):
            tensors = (None if v is None else torch.tensor(v) for v in (x, lo, hi))
            examples.setdefault(int(find_positions(*tensors)), (x, lo, hi))
    return examples


def kind_of_position(x: float, lo: float | None, hi: float | None) -> str:
    """Returns where an element is among its bounds: nan, at_bound, inside or beyond."""
    lo, hi = -math.inf if lo is None else lo, math.inf if hi is None else hi
    if any(v != v for v in (x, lo, hi)):
        return "nan"
    if lo <= hi and x in (lo, hi):
        return "at_bound"
    return "inside" if lo < x < hi else "beyond"
