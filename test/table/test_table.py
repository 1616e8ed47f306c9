"""Every row of conventions.yaml holds, however the operator is called and differentiated."""

from itertools import combinations, product

import pytest
import torch

import clampgrad
from common import (
    DTYPES,
    FORWARD,
    OPERATORS,
    REVERSE,
    assert_same,
    dual,
    eager,
    front_doors,
    jvp,
    leaves_out,
    mingrad_doors,
    tensor_doors,
    vjp,
)
from oracle import EXACT, PSEUDO, TABLE, factors, gradient_of_x, pseudo_gradient, scaled

# Blocked must mean 0 and open must mean g, also for these.
INCOMING = (1.0, -3.0, 0.0, torch.inf, -torch.inf, torch.nan)
ROWS = [
    pytest.param(operator, row, id=f"{operator}: {row['position']}")
    for operator in OPERATORS
    for row in TABLE["operators"][operator]["rows"]
]
PSEUDO_KEYS = [key for key in TABLE["pseudo_gradients"]["rows"][0] if key != "position"]


# Every way to differentiate goes through these two; the other spellings lead to the same operators.
def both(operator):
    doors = front_doors(operator)
    return doors[f"clampgrad.{operator}"], doors[f"clampgrad.{operator}_"]


def check_numbers(door, mode, operator, row, convention, dtype, **keywords):
    for x, *bounds in row["points"]:
        if leaves_out(door, bounds):
            continue
        g = torch.tensor(INCOMING, dtype=dtype)
        args = [torch.full_like(g, v) for v in (x, *bounds)]
        (gradient,) = mode(lambda x: door(x, *bounds, **keywords), args[:1], g)
        expected = scaled(g, factors(operator, "numbers", convention, args)[0])
        assert_same(gradient, expected, f"{operator}{(x, *bounds)} {dtype}")


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator, row", ROWS)
def test_numbers_in_eager_mode(operator, row, convention):
    for door in front_doors(operator).values():
        for dtype in DTYPES:
            check_numbers(door, eager, operator, row, convention, dtype, gradient=convention)


@pytest.mark.parametrize("mode", [*REVERSE.values(), *FORWARD.values()], ids=[*REVERSE, *FORWARD])
@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator, row", ROWS)
def test_numbers_in_transforms(operator, row, convention, mode):
    for door in both(operator):
        check_numbers(door, mode, operator, row, convention, torch.float32, gradient=convention)


@pytest.mark.parametrize("operator, row", ROWS)
def test_numbers_in_mingrad_operators(operator, row):
    for door in mingrad_doors(operator).values():
        for dtype in DTYPES:
            check_numbers(door, eager, operator, row, "min_norm", dtype)
        for mode in (*REVERSE.values(), *FORWARD.values()):
            check_numbers(door, mode, operator, row, "min_norm", torch.float32)


@pytest.mark.parametrize("operator, row", ROWS)
def test_min_norm_is_the_default(operator, row):
    for door in front_doors(operator).values():
        check_numbers(door, eager, operator, row, "min_norm", torch.float32)


# ---- Pseudo-gradients ----------------------------------------------------------------------------


def positions_and_incoming(dtype):
    """All pairs of a position around the bounds -1 and 2 and an incoming gradient."""
    tiny = torch.finfo(dtype).smallest_normal
    x = torch.tensor([-torch.inf, -3, -1, 0.5, 2, 2.5, torch.inf, torch.nan], dtype=dtype)
    g = torch.tensor([-torch.inf, -2, -tiny, -0.0, 0.0, tiny, 2, torch.inf, torch.nan], dtype=dtype)
    return [v.flatten() for v in torch.meshgrid(x, g, indexing="ij")]


def check_pseudo(door, mode, operator, key, dtype):
    convention, maximize = key.split(",")[0], "maximize" in key
    x, g = positions_and_incoming(dtype)
    cases = {
        "clamp": [(-1.0, 2.0), (2.0, 2.0), (2.0, -1.0), (torch.nan, 2.0), (-1.0, torch.nan)],
        "clamp_min": [(-1.0,), (-torch.inf,), (torch.nan,)],
        "clamp_max": [(2.0,), (torch.inf,), (torch.nan,)],
    }
    for bounds in cases[operator]:
        if leaves_out(door, bounds):
            continue
        names = ("min", "max") if operator == "clamp" else (operator[-3:],)
        (gradient,) = mode(
            lambda x: door(x, *bounds, gradient=convention, maximize=maximize), [x], g
        )
        expected = gradient_of_x(
            convention, x, g, maximize=maximize, **dict(zip(names, bounds, strict=True))
        )
        assert_same(gradient, expected, f"{operator}{bounds} {dtype}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("key", PSEUDO_KEYS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_pseudo_gradients_in_eager_mode(operator, key, dtype):
    for door in front_doors(operator).values():
        check_pseudo(door, eager, operator, key, dtype)


@pytest.mark.parametrize("mode", REVERSE.values(), ids=REVERSE)
@pytest.mark.parametrize("key", PSEUDO_KEYS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_pseudo_gradients_in_transforms(operator, key, mode):
    for door in both(operator):
        check_pseudo(door, mode, operator, key, torch.float32)


@pytest.mark.parametrize("mode", FORWARD.values(), ids=FORWARD)
@pytest.mark.parametrize("operator", OPERATORS)
def test_straight_through_has_a_tangent(operator, mode):
    for door in both(operator):
        check_pseudo(door, mode, operator, "straight_through", torch.float32)


@pytest.mark.parametrize("maximize", [False, True])
def test_clamp_with_grad_is_clamp_with_that_convention(maximize):
    def door(x, lo, hi, *, gradient, maximize):
        return clampgrad.clamp_with_grad(x, lo, hi, maximize=maximize)

    check_pseudo(door, eager, "clamp", "with_grad" + ", maximize" * maximize, torch.float32)


def test_the_package_knows_the_conventions_of_the_table():
    assert clampgrad.CONVENTIONS == EXACT + PSEUDO


# ---- Tensor arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", TABLE["operators"])
def test_tensors(operator, convention):
    names = TABLE["operators"][operator]["arguments"]
    points = [p for row in TABLE["operators"][operator]["rows"] for p in row["points"]]
    pairs = [(*point, g) for point in points for g in INCOMING]
    *args, g = torch.tensor(pairs).unbind(1)
    subsets = [c for n in range(1, len(names) + 1) for c in combinations(names, n)]
    doors = tensor_doors(operator, convention)
    for differentiated, mode, name in product(subsets, [eager, vjp, dual, jvp], doors):

        def f(*variables):
            values = dict(zip(names, args)) | dict(zip(differentiated, variables))
            return doors[name](*values.values())

        variables = [dict(zip(names, args))[name] for name in differentiated]
        expected = factors(operator, "tensors", convention, args, differentiated)
        for argument, gradient in zip(differentiated, mode(f, variables, g)):
            wanted = scaled(g, expected[names.index(argument)])
            torch.testing.assert_close(gradient, wanted, equal_nan=True, msg=name)


@pytest.mark.parametrize("reverse", [eager, vjp])
@pytest.mark.parametrize("key", PSEUDO_KEYS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_tensor_bounds_under_pseudo_gradients(operator, key, reverse):
    """A bound keeps its own active region, nothing twice and nothing lost."""
    convention, maximize = key.split(",")[0], "maximize" in key
    names = TABLE["operators"][operator]["arguments"]
    points = [p for row in TABLE["operators"][operator]["rows"] for p in row["points"]]
    *args, g = torch.tensor([(*point, g) for point in points for g in INCOMING]).unbind(1)
    y = getattr(torch, operator)(*args)
    for differentiated in [c for n in range(1, len(names) + 1) for c in combinations(names, n)]:

        def f(*variables):
            values = dict(zip(names, args)) | dict(zip(differentiated, variables))
            keywords = {"gradient": convention, "maximize": maximize}
            return getattr(clampgrad, operator)(*values.values(), **keywords)

        shares = factors(operator, "tensors", "min_norm", args, differentiated)
        outside = ~(args[0] == y) & ~y.isnan()
        wanted = {n: scaled(g, torch.where(outside, s, 0)) for n, s in zip(names, shares)}
        wanted["x"] = pseudo_gradient(convention, maximize, args[0], y, g)
        variables = [dict(zip(names, args))[name] for name in differentiated]
        for name, gradient in zip(differentiated, reverse(f, variables, g)):
            torch.testing.assert_close(gradient, wanted[name], equal_nan=True, msg=name)
