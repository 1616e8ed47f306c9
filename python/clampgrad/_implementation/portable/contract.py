"""Looks up the contract: how the arguments of an element compare decides the share of each.

A comparison code says how the arguments of an element compare, as a number below 64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from functools import cache, reduce
from operator import or_
from typing import Any, TypeAlias

import torch
from torch import Tensor

from clampgrad._contract.table import EXACT, TABLE, factors

# {("g", 2) for half of g, or (-1, 1) for a number: where, for each relation of g to 0}
Share: TypeAlias = dict[tuple[Any, int], tuple[str, ...]]

OPERATORS = TABLE["operators"]
PSEUDO_GRADIENTS = {row["position"]: row for row in TABLE["pseudo_gradients"]["rows"]}
# In the order of `encode_relation(g, 0)`.
COLUMNS = [
    TABLE["pseudo_gradients"]["columns"].index(name)
    for name in ("g is NaN", "g < 0", "g > 0", "g = 0")
]
# The pairs that are compared, and their weights in a code. Two arguments are also compared with
# themselves, which tells which of them is NaN; of three, the pairs tell.
PAIRS = {2: [(0, 0, 16), (0, 1, 4), (1, 1, 1)], 3: [(0, 1, 16), (0, 2, 4), (1, 2, 1)]}


def encode_relation(a: Tensor, b: Tensor | int) -> Tensor:
    """Returns 0 where one of them is NaN, 1 where a < b, 2 where a > b, 3 where they are equal."""
    return (a <= b).to(torch.uint8) + 2 * (a >= b).to(torch.uint8)


def encode_comparisons(*args: Any) -> Tensor:
    """Returns the comparison code of two or three arguments, Tensors or numbers, per element."""
    tensor_code: Any = None
    scalar_code = 0
    for i, j, weight in PAIRS[len(args)]:
        a, b = args[i], args[j]
        masks = [(a == b, 3)] if i == j else [(a <= b, 1), (a >= b, 2)]
        for mask, value in masks:
            if isinstance(mask, bool):
                scalar_code += mask * value * weight
            elif tensor_code is None:
                tensor_code = mask.to(torch.uint8) * (value * weight)
            else:
                tensor_code = torch.add(tensor_code, mask, alpha=value * weight)
    return tensor_code + scalar_code if scalar_code else tensor_code


def format_code_set(chosen: Iterable[int]) -> str:
    """Formats a set of comparison codes: a few codes, or 64 bits. Text, because a graph may hold an
    int as a variable."""
    few = sorted(set(chosen))
    return " ".join(map(str, few)) if 0 < len(few) < 4 else bin(sum(1 << code for code in few))


def is_in_code_set(chosen: str, code: Tensor) -> Tensor:
    """Whether the set has the code of the element."""
    if not chosen.startswith("0b"):
        return reduce(or_, [code == int(one) for one in chosen.split()])
    mask = int(chosen, 2)
    signed = mask - (mask >> 63 << 64)
    return (torch.bitwise_right_shift(signed, code.long()) & 1).bool()


@cache
def rows(operator: str) -> dict[int, tuple[dict, str]]:
    """Returns the row of every comparison code, and how x compares with the result y there."""
    row_by_code = {}
    for row in OPERATORS[operator]["rows"]:
        args = torch.tensor(row["points"], dtype=torch.float64, device="cpu").unbind(1)
        y = getattr(torch, operator)(*args)
        for code, versus in zip(
            encode_comparisons(*args).tolist(), encode_relation(args[0], y).tolist()
        ):
            row_by_code[code] = row, ("y is NaN", "x < y", "x > y", "x = y")[versus]
    return row_by_code


@cache
def shares(
    operator: str, gradient: str, numbers: bool, differentiated: frozenset[str]
) -> dict[str, Share]:
    """Returns the shares of a gradient g for every argument, and the codes at which it gets them;
    at others it gets 0."""
    names = OPERATORS[operator]["arguments"]
    share_by_name: dict[str, Any] = {
        name: defaultdict(lambda: tuple([] for _ in COLUMNS)) for name in names
    }
    for code, (row, versus) in rows(operator).items():
        rule = gradient if gradient in EXACT else "min_norm"
        for name, factor in zip(names, map(Fraction, factors(row, rule, numbers, differentiated))):
            assert factor.numerator in (0, 1), "the select divides g, and does not multiply it"
            gets = [("g", factor.denominator) if factor else (0, 1)] * len(COLUMNS)
            if gradient not in EXACT and name == "x":
                gets = [(PSEUDO_GRADIENTS[versus][gradient][column], 1) for column in COLUMNS]
            elif gradient not in EXACT and versus == "x = y":
                continue
            for column, what in enumerate(gets):
                if what[0] != 0:
                    share_by_name[name][what][column].append(code)
    return {
        name: {what: tuple(map(format_code_set, where)) for what, where in share.items()}
        for name, share in share_by_name.items()
    }
