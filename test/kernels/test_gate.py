"""The forward records what backward needs, in several threads, and for every 16-bit number."""

from functools import partial

import pytest
import torch

import clampgrad
from oracle import CLAMPS, CONVENTIONS, gradient_of_x
from testing.comparing import BOUNDS, DTYPES, assert_same, eager, random_with_ties

pytestmark = pytest.mark.compiled(
    "it looks at kernels and nodes that the portable implementation does not have"
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operator", CLAMPS)
def test_large_enough_for_several_threads(operator, dtype):
    """Threads that share a byte of bits at the border of their ranges would lose some."""
    torch.set_num_threads(4)
    x, g = random_with_ties(300_007, dtype=dtype), random_with_ties(300_007, dtype=dtype, seed=1)
    for convention in ("min_norm", "inclusive", "half"):
        f = partial(getattr(clampgrad, operator), **BOUNDS[operator], gradient=convention)
        (gradient,) = eager(f, [x], g)
        assert_same(gradient, gradient_of_x(convention, x, g, **BOUNDS[operator]), convention)


def every_number(dtype):
    """All 65536 of a 16-bit format."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_16_bit_input(convention, dtype):
    x = every_number(dtype)
    g = torch.ones_like(x)
    largest = torch.finfo(dtype).max
    for bounds in [(-1, 1), (0, 0), (-0.0, None), (None, 6e-8), (-largest, largest), (2, -2)]:
        (gradient,) = eager(lambda x: clampgrad.clamp(x, *bounds, gradient=convention), [x], g)
        assert_same(gradient, gradient_of_x(convention, x, g, *bounds), str(bounds))
        actual = clampgrad.clamp(x.requires_grad_(), *bounds, gradient=convention).detach()
        assert_same(actual, x.detach().clamp(*bounds), str(bounds))
        x = x.detach()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_16_bit_gradient(convention, dtype):
    """Halves and quarters round as torch rounds them, subnormal numbers too."""
    g = every_number(dtype)
    for value in (-3, 0, 0.5, 1, 3, torch.nan):
        x = torch.full_like(g, value)
        for bounds in [(0, 1), (0, 0)]:
            (gradient,) = eager(lambda x: clampgrad.clamp(x, *bounds, gradient=convention), [x], g)
            assert_same(gradient, gradient_of_x(convention, x, g, *bounds), f"{value} {bounds}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_gradient_in_thirds(dtype):
    """Three tied arguments that are all being differentiated: rounded
    once, subnormal numbers too."""
    g = every_number(dtype)
    args = [torch.zeros_like(g) for _ in range(3)]
    for gradient in eager(clampgrad.clamp, args, g):
        assert_same(gradient, (g.double() / 3).to(dtype))


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("bounds", [(0, 1), (torch.tensor(0.0), torch.tensor(1.0))])
def test_a_gradient_of_zero_is_let_through(bounds, maximize):
    """Only double backward sees it: the selection has derivative 1 where g passed."""
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    g = torch.zeros(3, requires_grad=True)
    for call in (clampgrad.clamp, lambda x, *b, **k: clampgrad.clamp_(x * 1, *b, **k)):
        y = call(x, *bounds, gradient="with_grad", maximize=maximize)
        (gradient,) = torch.autograd.grad(y, x, g, create_graph=True)
        assert torch.autograd.grad(gradient.sum(), g)[0].tolist() == [1, 1, 1]
