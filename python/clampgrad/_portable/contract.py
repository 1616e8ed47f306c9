"""The contract, looked up: from how the arguments compare to what the gradient is."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clampgrad._table import TABLE

OPERATORS = TABLE["operators"]
PSEUDO_GRADIENTS = {row["position"]: row for row in TABLE["pseudo_gradients"]["rows"]}
# In the order of `relation(g, 0)`.
RELATIONS = ("g is NaN", "g < 0", "g > 0", "g = 0")
COLUMNS = [TABLE["pseudo_gradients"]["columns"].index(name) for name in RELATIONS]


# ---- Positions -----------------------------------------------------------------------------------
# Two arguments are compared with themselves too, which tells which of them is NaN; of three, the pairs
# tell. A set of positions is an integer with a bit for each.

PAIRS = {2: [(0, 0), (0, 1), (1, 1)], 3: [(0, 1), (0, 2), (1, 2)]}


def relation(a: Tensor, b: Tensor | int) -> Tensor:
    """0 where one of them is NaN, 1 where a < b, 2 where a > b, 3 where they are equal."""
    return (a <= b).to(torch.uint8) + 2 * (a >= b).to(torch.uint8)


def positions(*args: Tensor) -> Tensor:
    """How two or three arguments compare, as a number below 64 per element."""
    first, second, third = (relation(args[i], args[j]) for i, j in PAIRS[len(args)])
    return 16 * first + 4 * second + third


def contains(chosen: int, position: Tensor) -> Tensor:
    """Whether a set of positions has that of the element."""
    signed = chosen - (chosen >> 63 << 64)
    return (torch.bitwise_right_shift(signed, position.long()) & 1).bool()


# ---- What the table says of each -----------------------------------------------------------------


@cache
def rows(operator: str) -> dict[int, tuple[dict, str]]:
    """Of every position, its row and how x compares with the result y."""
    found = {}
    for row in OPERATORS[operator]["rows"]:
        args = torch.tensor(row["points"], dtype=torch.float64, device="cpu").unbind(1)
        y = getattr(torch, operator)(*args)
        for position, versus in zip(positions(*args).tolist(), relation(args[0], y).tolist()):
            found[position] = row, ("y is NaN", "x < y", "x > y", "x = y")[versus]
    return found


def factors(
    operator: str, gradient: str, numbers: bool, differentiated: frozenset[int], row: dict
) -> list[Fraction]:
    """What the gradient of each argument is multiplied by."""
    names = OPERATORS[operator]["arguments"]
    if numbers:
        return [Fraction(row["numbers"][gradient]), *[Fraction(0)] * (len(names) - 1)]
    active = {names.index(name) for name in row["active"]}
    if gradient == "min_norm" and len(active) > 1 and not active <= differentiated:
        return [Fraction(0)] * len(names)
    return [Fraction(factor) for factor in row["tensors"][gradient]]


@cache
def shares(
    operator: str, gradient: str, numbers: bool, differentiated: frozenset[int]
) -> list[dict[int, int]]:
    """Of every argument, {divisor: where it gets g / divisor}; elsewhere it gets 0.

    Of a pseudo-gradient, those of the bounds, and of x nothing.
    """
    names = OPERATORS[operator]["arguments"]
    result: list[dict[int, int]] = [defaultdict(int) for _ in names]
    exact = gradient in OPERATORS[operator]["rows"][0]["tensors"]
    for position, (row, versus) in rows(operator).items():
        found = factors(operator, gradient if exact else "min_norm", numbers, differentiated, row)
        for i, factor in enumerate(found):
            if factor and (exact or (i > 0 and versus != "x = y")):
                assert factor.numerator == 1
                result[i][factor.denominator] |= 1 << position
    return result


@cache
def pseudo_gradient(operator: str, key: str) -> dict[Any, list[int]]:
    """Of x: {what it gets: where, for each relation of g to 0}; "g" is g; elsewhere it gets 0."""
    result: dict[Any, list[int]] = defaultdict(lambda: [0] * len(RELATIONS))
    for position, (_, versus) in rows(operator).items():
        for relation, column in enumerate(COLUMNS):
            value = PSEUDO_GRADIENTS[versus][key][column]
            if value != 0:
                result[value][relation] |= 1 << position
    return result


for _operator in OPERATORS:
    rows(_operator)  # now: what is traced later has no values to look up
