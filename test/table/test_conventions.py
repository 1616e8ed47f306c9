"""The table itself is complete, consistent, and true of the installed torch.

A wrong number in conventions.yaml would make every other test agree on the wrong thing.
"""

import re
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import torch

from oracle import EXACT, PSEUDO, TABLE, encode_position, factors, gradient_of_x, scaled
from testing.comparing import DTYPES, eager, random_with_ties
from testing.releases import OF_NO_CONVENTION, RELEASED

OPERATORS = TABLE["operators"]
ROWS = [
    pytest.param(operator, row, id=f"{operator}: {row['position']}")
    for operator in OPERATORS
    for row in OPERATORS[operator]["rows"]
]


def test_what_says_more_of_a_convention_names_exact_ones():
    assert {*TABLE["depends_on_differentiated"], *TABLE["one_step"]} <= {*EXACT}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_way_to_compare_has_exactly_one_row(operator):
    count = len(OPERATORS[operator]["arguments"])
    every_way = {
        int(encode_position(*torch.tensor(values)))
        for values in product([0.0, 1.0, 2.0, torch.nan], repeat=count)
    }
    rows = [
        {int(encode_position(*torch.tensor(point, dtype=torch.float64))) for point in row["points"]}
        for row in OPERATORS[operator]["rows"]
    ]
    assert set().union(*rows) == every_way
    assert sum(map(len, rows)) == len(every_way)


@pytest.mark.parametrize("operator, row", ROWS)
def test_active_inputs_are_those_that_the_forward_selects_nearby(operator, row):
    names = OPERATORS[operator]["arguments"]
    for point in row["points"]:
        # One step of each argument to either side, unequal steps, so that no tie survives.
        steps = [[0.01 * 2**i * s for s in (-1, 1)] for i in range(len(names))]
        finite = all(abs(v) < torch.inf or v != v for v in point)
        active = set()
        for step in product(*steps):
            nearby = torch.tensor(point, dtype=torch.float64) + torch.tensor(step)
            result = getattr(torch, operator)(*nearby)
            active |= {n for n, v in zip(names, nearby, strict=True) if v == result}
        if finite:  # there is no step away from infinity
            assert active == set(row["active"]), point


@pytest.mark.parametrize("operator, row", ROWS)
def test_kernels_divide_a_gradient_and_multiply_none(operator, row):
    """Otherwise the portable implementation would fail in a user's call."""
    for convention in EXACT:
        given = [row.get("numbers", {}).get(convention, 0), *row["tensors"][convention]]
        assert {Fraction(factor).numerator for factor in given} <= {0, 1}, convention


@pytest.mark.parametrize("operator, row", ROWS)
def test_min_norm_follows_from_the_active_inputs(operator, row):
    names, active = OPERATORS[operator]["arguments"], row["active"]
    share = Fraction(1, max(len(active), 1))
    expected = [share if name in active else 0 for name in names]
    assert [Fraction(v) for v in row["tensors"]["min_norm"]] == expected
    if "numbers" in row:
        assert Fraction(row["numbers"]["min_norm"]) == (1 if active == ["x"] else 0)


OPERATORS_AND_KINDS = [
    (operator, kind)
    for operator in OPERATORS
    for kind in ("numbers", "tensors")
    if kind in OPERATORS[operator]["rows"][0]
]


@pytest.mark.skipif(OF_NO_CONVENTION, reason="its gradient is of no convention")
@pytest.mark.parametrize("operator, kind", OPERATORS_AND_KINDS)
def test_inclusive_is_torch_up_to_2_13_and_joint_from_2_15(operator, kind):
    """On random tensors full of ties."""
    function, names = getattr(torch, operator), OPERATORS[operator]["arguments"]
    values = [-1.0, 0.0, 1.0, torch.inf, torch.nan]
    of_numbers = product(values, repeat=len(names) - 1) if kind == "numbers" else [()]
    for dtype, bounds in product(DTYPES, of_numbers):
        args = [
            random_with_ties(3000, dtype=dtype, seed=i) for i in range(len(names) - len(bounds))
        ]
        g = torch.randint(1, 9, (3000,)).to(dtype)
        gradients = eager(lambda *args: function(*args, *bounds), args, g)
        constants = [torch.full_like(g, v) for v in bounds]
        expected = factors(operator, kind, RELEASED, (*args, *constants))
        for factor, actual in zip(expected, gradients, strict=True):
            torch.testing.assert_close(scaled(g, factor), actual)


@pytest.mark.parametrize("operator, row", ROWS)
def test_half_is_a_composition_that_shares_every_tie(operator, row):
    """torch.maximum and minimum share ties in every release; the table is their composition."""
    compositions = {
        "clamp": lambda x, lo, hi: torch.minimum(torch.maximum(x, lo), hi),
        "clamp_min": torch.maximum,
        "clamp_max": torch.minimum,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        # A NaN that is ignored counts as the weakest possible value.
        "fmax": lambda *args: torch.maximum(*(torch.where(a.isnan(), -torch.inf, a) for a in args)),
        "fmin": lambda *args: torch.minimum(*(torch.where(a.isnan(), torch.inf, a) for a in args)),
    }
    for point in row["points"]:
        args = [torch.tensor([v], dtype=torch.float64) for v in point]
        expected = [Fraction(v) for v in row["tensors"]["half"]]
        if getattr(torch, operator)(*args).isnan():
            assert not any(expected)
        else:
            assert [v.item() for v in eager(compositions[operator], args, None)] == expected
        if "numbers" in row:
            assert Fraction(row["numbers"]["half"]) == expected[0]


def test_pseudo_gradients_are_what_the_notebook_computes():
    """Uses numbers for which the product of with_grad neither overflows nor vanishes."""
    x, g = (
        random_with_ties(5000, seed=1, nan=False).clamp(-9, 9),
        torch.randint(-3, 4, (5000,)).float(),
    )
    delta = x - x.clamp(0, 1)
    with_grad, restoring = g * (g * delta >= 0), torch.where(delta == 0, g, delta.sign())
    torch.testing.assert_close(gradient_of_x("with_grad", x, g, 0, 1), with_grad)
    torch.testing.assert_close(gradient_of_x("restoring", x, g, 0, 1), restoring)


@pytest.mark.parametrize("example", TABLE["examples"], ids=lambda e: e["call"])
def test_examples_name_every_convention_that_applies(example):
    conventions = {key.split(",")[0] for key in example}
    assert conventions >= set(EXACT) or conventions >= set(PSEUDO)


def test_the_compiled_names_are_those_of_the_contract():
    """csrc lists the names and aliases once more: neither list lacks one of the other's."""
    header = (Path(__file__).parents[2] / "csrc/clampgrad/gradient.h").read_text()
    lists = {
        name: dict(re.findall(r"_\((\w+), (\w+)\)", text))
        for name, text in re.findall(r"#define CLAMPGRAD_(\w+)\(_\)((?:.*\\\n)*.*)", header)
    }
    exact, pseudo = lists["EXACT_GRADIENTS"], lists["PSEUDO_GRADIENTS"]
    assert (set(exact), set(pseudo)) == (set(EXACT), set(PSEUDO))
    assert sorted(map(int, (exact | pseudo).values())) == [*range(len(exact | pseudo))]
    assert lists["GRADIENT_ALIASES"] == TABLE["aliases"]
