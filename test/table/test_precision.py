"""Mixed precision and reproducibility: GradScaler, subnormals, deterministic mode."""

from functools import partial

import pytest
import torch

import clampgrad
from oracle import CONVENTIONS, EXACT, gradient_of_x
from testing.comparing import DTYPES, assert_same, eager, random_with_ties

DEVICE = torch.get_default_device().type  # --device


@pytest.mark.parametrize("convention", EXACT)
def test_the_scaler_sees_an_overflow_where_it_is_let_through(convention):
    """An infinite gradient is a reason to skip a step at an open
    element, but not at a blocked one."""
    for x, taken in ((2.0, True), (0.5, False)):
        parameter = torch.nn.Parameter(torch.tensor([x, 0.25]))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**15)
        y = clampgrad.clamp(parameter, 0, 1, gradient=convention)
        scaler.scale((y * torch.tensor([torch.inf, 1])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == ([x, -0.75] if taken else [x, 0.25])
        assert scaler.get_scale() == (2.0**15 if taken else 2.0**14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_subnormal_numbers_are_numbers(convention, dtype):
    """As values, bounds and gradients: none is treated as 0 or becomes 0."""
    s = torch.finfo(dtype).tiny / 4
    x = torch.tensor([-s, 0, s, 2 * s, 3 * s], dtype=dtype).repeat(3)
    g = torch.tensor([-s, s, 2 * s], dtype=dtype).repeat_interleave(5)
    assert x[:5].unique().numel() == 5 and g.all()  # not flushed on the way here

    def f(x):
        return clampgrad.clamp(x, 0, 2 * s, gradient=convention)

    assert_same(f(x), torch.clamp(x, 0, 2 * s))
    (gradient,) = eager(f, [x], g)
    assert_same(gradient, gradient_of_x(convention, x, g, 0, 2 * s))
    assert gradient[2] == g[2] != 0


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_deterministic_mode(deterministic, convention):
    """It raises no error, and all memory that it fills with NaN is overwritten."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    x, g = random_with_ties(999), random_with_ties(999, seed=1)
    (gradient,) = eager(lambda x: clampgrad.clamp(x, 0, 1, gradient=convention), [x], g)
    assert_same(gradient, gradient_of_x(convention, x, g, 0, 1))
    args = [random_with_ties(99, 9, nan=False).clamp(-9, 9), torch.zeros(9), torch.ones(9)]
    f, g = partial(clampgrad.clamp, gradient=convention), torch.ones(99, 9)
    for first, second in zip(eager(f, args, g), eager(f, args, g)):
        assert_same(first, second)
        assert not first.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_derivative_of_a_share_does_not_overflow(dtype):
    """A half and a quarter of g, each by itself."""
    ones = [torch.ones(1, dtype=dtype, requires_grad=i > 0) for i in range(3)]
    g, large = torch.ones(1, dtype=dtype, requires_grad=True), torch.finfo(dtype).max * 0.9
    shares = torch.autograd.grad(
        clampgrad.clamp(*ones, gradient="half"), ones[1:], g, create_graph=True
    )
    (second,) = torch.autograd.grad(shares, g, [torch.full_like(g, large)] * 2)
    torch.testing.assert_close(second, torch.full_like(g, large * 0.75))
