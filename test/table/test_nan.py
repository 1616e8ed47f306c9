"""A NaN has the same gradient wherever it stands, and a blocked gradient stays blocked.

Vector instructions and the scalar loop after them differ in NaN more often than in anything else
(torch's own hardtanh does), so every length up to 70 is tried: full vectors, halves of them, tails.
"""

import pytest
import torch

import clampgrad
from common import CLAMP_IGNORES_NAN, DTYPES, assert_same, eager, front_doors, mingrad_doors
from oracle import CONVENTIONS, EXACT, gradient_of_x

LENGTHS = [*range(1, 71), 100_003]


def doors():
    yield from ((name, door, CONVENTIONS) for name, door in front_doors("clamp").items())
    for name, door in mingrad_doors("clamp").items():
        yield name, lambda *a, gradient, door=door: door(*a), ("min_norm",)


DOORS = [pytest.param(d, c, id=f"{n}-{c}") for n, d, names in doors() for c in names]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("door, convention", DOORS)
def test_only_nan(door, convention, dtype):
    expected = 1 if convention == "straight_through" else 0
    for length in LENGTHS:
        x = torch.full((length,), torch.nan, dtype=dtype)
        (gradient,) = eager(lambda x: door(x, -1, 1, gradient=convention), [x], torch.ones_like(x))
        assert (gradient == expected).all(), length


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("door, convention", DOORS)
def test_bounds_that_are_nan(door, convention, dtype):
    expected = 1 if convention == "straight_through" else 0
    for length in (1, 8, 35, 70):
        for bounds in ((torch.nan, 1), (-1, torch.nan), (torch.nan, None), (None, torch.nan)):
            if CLAMP_IGNORES_NAN and None in bounds:
                continue  # then the result is no NaN
            x = torch.zeros(length, dtype=dtype)
            (gradient,) = eager(
                lambda x: door(x, *bounds, gradient=convention), [x], torch.ones_like(x)
            )
            assert (gradient == expected).all(), (length, bounds)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_one_nan_among_others(convention, dtype):
    """Row i has its NaN at position i; the neighbours do not notice."""
    for length in (9, 35):
        x = torch.eye(length, dtype=dtype).masked_fill(torch.eye(length) == 1, torch.nan)
        g = torch.ones_like(x)
        for row in x:
            (gradient,) = eager(
                lambda x: clampgrad.clamp(x, -1, 1, gradient=convention), [row], g[0]
            )
            assert_same(gradient, gradient_of_x(convention, row, g[0], -1, 1), f"{length}")


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", EXACT)
def test_blocked_is_0_whatever_comes_in(convention, dtype, value):
    for length in LENGTHS:
        for outside in (-9, 9, torch.nan):
            x = torch.full((length,), outside, dtype=dtype)
            g = torch.full_like(x, value)
            (gradient,) = eager(lambda x: clampgrad.clamp(x, -1, 1, gradient=convention), [x], g)
            assert not gradient.any(), (length, outside)


def test_the_nan_guard():
    """sqrt has an infinite slope at 0: min_norm blocks it, inclusive lets it through."""
    x = torch.tensor([-1.0, 0.0, 4.0])
    for convention, expected in (("min_norm", [0, 0, 0.25]), ("inclusive", [0, torch.inf, 0.25])):
        (gradient,) = eager(
            lambda x: clampgrad.clamp_min(x, 0, gradient=convention).sqrt(), [x], torch.ones(3)
        )
        assert gradient.tolist() == expected


# By dtype: the bits of a NaN that signals, in the integer of that width.
SIGNALLING = {
    torch.float32: (torch.int32, 0x7F800001),
    torch.float64: (torch.int64, 0x7FF0000000000001),
    torch.bfloat16: (torch.int16, 0x7F81),
    torch.float16: (torch.int16, 0x7C01),
}


@pytest.mark.parametrize("dtype", SIGNALLING, ids=str)
@pytest.mark.parametrize("name", ["fmax", "fmin", "maximum", "minimum"])
def test_a_nan_that_signals(name, dtype):
    """torch.fmax asks the C library, to which it is more than a missing number."""
    bits, value = SIGNALLING[dtype]
    for length in (1, 70):
        nan = torch.full((length,), value, dtype=bits).view(dtype)
        others = [torch.full_like(nan, other) for other in (-1, 2, torch.inf, torch.nan)]
        for pair in [(nan, other) for other in others] + [(other, nan) for other in others]:
            expected = getattr(torch, name)(*pair)
            recorded = (t.clone().requires_grad_() for t in pair)
            found = getattr(clampgrad, name)(*recorded).detach()
            assert_same(found, expected, f"{pair[0][0]} {pair[1][0]}")
            if name.startswith("f"):  # it signals no more
                assert_same(torch.fmax(found, others[0]), torch.fmax(expected, others[0]))
