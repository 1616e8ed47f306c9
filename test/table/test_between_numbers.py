"""Exact conventions between numbers: all values of an element beside all pairs of bounds. The
forward is torch's to the bit, the gradient the oracle's."""

import math
from functools import partial
from itertools import product

import pytest
import torch
from torch.func import jvp, vjp, vmap

import clampgrad
from oracle import EXACT, factors, scaled
from testing.comparing import DTYPES, assert_same

NUMBERS = [-math.inf, -6, -0.1, -0.0, 0, 0.1, 0.5, 1, 1.0, 6, 1e-40, math.inf, math.nan]
BOUNDS = [pair for pair in product([None, *NUMBERS], repeat=2) if pair != (None, None)]
COTANGENTS = [1.0, -2.0, 0.0, math.inf, -math.inf, math.nan]
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def values(dtype):
    """Around the bounds, and where a dtype ends."""
    info = torch.finfo(dtype)
    ends = [info.max, info.smallest_normal, info.smallest_normal / 2, 1 + info.eps, 1 - info.eps]
    both = [sign * value for value in (*NUMBERS, 7, *ends) for sign in (1, -1)]
    return torch.tensor(both, dtype=torch.float64).to(dtype)


def in_parts(x, lo, hi, **keywords):
    """Views of it, in place."""
    z = x.clone()
    for part in (z[..., 1:], z[..., :1]) if z.dim() else (z,):
        clampgrad.clamp_(part, lo, hi, **keywords)
    return z


def pinned(function):
    def run(x, lo, hi, *, gradient):
        with clampgrad.pin(gradient):
            return function(x, lo, hi)

    return run


FORMS = {
    "function": lambda x, lo, hi, **keywords: clampgrad.clamp(x, lo, hi, **keywords),
    "views in place": in_parts,
    "pin": pinned(torch.clamp),
    "pin, in place": pinned(lambda x, lo, hi: x.clone().clamp_(lo, hi)),
}


def expected(convention, x, g, lo, hi):
    operator = "clamp_max" if lo is None else "clamp_min" if hi is None else "clamp"
    numbers = [torch.tensor(b, dtype=torch.float64) for b in (lo, hi) if b is not None]
    bounds = [number.to(x.dtype).expand(len(x)) for number in numbers]
    return scaled(g, factors(operator, "numbers", convention, [x, *bounds])[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element(dtype, convention, form):
    x = values(dtype).repeat_interleave(len(COTANGENTS))
    g = torch.tensor(COTANGENTS, dtype=dtype).repeat(len(x) // len(COTANGENTS))
    number = [torch.float32, torch.float64, torch.bfloat16, torch.float16].index(dtype)
    for lo, hi in BOUNDS[number::7]:
        f = partial(FORMS[form], lo=lo, hi=hi, gradient=convention)
        share, result = expected(convention, x, g, lo, hi), torch.clamp(x, lo, hi)
        leaf = x.clone().requires_grad_()
        y = f(leaf)
        same = y.detach().view(BITS[dtype.itemsize]) == result.view(BITS[dtype.itemsize])
        assert (same | (y.isnan() & result.isnan())).all(), (lo, hi)
        gradients = {
            "backward": torch.autograd.grad(y, leaf, g)[0],
            "vmap of vjp": vmap(lambda x, g: vjp(f, x)[1](g)[0])(x, g),  # noqa: B023
            "vjp of vmap": vjp(vmap(f), x)[1](g)[0],
            "jvp": jvp(f, (x,), (g,))[1],
        }
        for context, gradient in gradients.items():
            assert_same(gradient, share, (context, lo, hi))
