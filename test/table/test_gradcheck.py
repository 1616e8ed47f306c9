"""Derivatives of the first and second order are right, forward mode and batches included."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import clampgrad
from common import OPERATORS, eager, vjp
from oracle import EXACT, PSEUDO, gradient_of_x, selection

BOUNDS = {"clamp": (-1, 1), "clamp_min": (-1,), "clamp_max": (1,)}
FUNCTIONS = {
    f"{operator}, {convention}": lambda x, operator=operator, convention=convention: getattr(
        clampgrad, operator
    )(x, *BOUNDS[operator], gradient=convention)
    for operator in OPERATORS
    for convention in EXACT
}
FUNCTIONS |= {
    f"{operator}_mingrad": lambda x, operator=operator: getattr(
        torch.ops.clampgrad, operator + "_mingrad"
    )(x, *BOUNDS[operator])
    for operator in OPERATORS
}
FUNCTIONS |= {
    f"{name}_": lambda x, f=f, name=name: in_place(name)(x.clone())
    for name, f in list(FUNCTIONS.items())
}


def in_place(name):
    operator, _, convention = name.partition(", ")
    if convention:
        return lambda x: getattr(clampgrad, operator + "_")(
            x, *BOUNDS[operator], gradient=convention
        )
    bounds = BOUNDS[operator.removesuffix("_mingrad")]
    return lambda x: getattr(torch.ops.clampgrad, operator + "_")(x, *bounds)


def away_from_ties(*shape):
    """Points on both sides of -1 and 1, none closer than 0.09."""
    return torch.linspace(-2.3, 2.1, 12, dtype=torch.float64).reshape(shape)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name):
    for x in (away_from_ties(12), away_from_ties(3, 4).t(), away_from_ties(3, 4)[:, ::2]):
        x = x.detach().requires_grad_()
        assert gradcheck(
            FUNCTIONS[name],
            x,
            check_forward_ad=True,
            check_batched_grad=True,
            check_batched_forward_grad=True,
        )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradgradcheck(name):
    # Curved on both sides, or the second derivative is 0 and the check is empty.
    x = away_from_ties(12).requires_grad_()
    assert gradgradcheck(
        lambda x: FUNCTIONS[name](x).sin(),
        x,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
    )


@pytest.mark.compiled("it is an operator of its own there alone")
def test_the_backward_operator():
    g = torch.randn(12, dtype=torch.float64, requires_grad=True)
    x = away_from_ties(12).requires_grad_()
    for bounds in ((-1, 1), (-1, None), (None, 1)):

        def f(g, x):
            return torch.ops.clampgrad.clamp_mingrad_backward(g, x, *bounds)

        assert gradcheck(f, (g, x), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(f, (g, x), check_fwd_over_rev=True)


# ---- No derivatives: gradcheck does not apply, so what double backward yields is said here -------


@pytest.mark.parametrize("reverse", [eager, vjp])
@pytest.mark.parametrize(
    "convention, maximize",
    [(c, m) for c in PSEUDO for m in (False, True) if (c, m) != ("straight_through", True)],
)
def test_double_backward_differentiates_the_selection(convention, maximize, reverse):
    """With respect to g: 1 where g passed, 0 elsewhere. With respect to x: 0."""
    x = torch.tensor([-2.0, -1, 0, 1, 2, torch.nan]).repeat(3)
    g = torch.tensor([-3.0, 0.0, 3.0]).repeat_interleave(6)

    def gradient(x, g):
        f = torch.func.vjp(
            lambda x: clampgrad.clamp(x, -1, 1, gradient=convention, maximize=maximize), x
        )[1]
        return f(g)[0]

    def recorded_gradient(x, g):
        y = clampgrad.clamp(x, -1, 1, gradient=convention, maximize=maximize)
        return torch.autograd.grad(y, x, g, create_graph=True)[0]

    f = gradient if reverse is vjp else recorded_gradient
    torch.testing.assert_close(
        f(x.clone().requires_grad_(), g),
        gradient_of_x(convention, x, g, -1, 1, maximize),
        equal_nan=True,
    )
    h = torch.linspace(1, 2, 18)
    with_respect_to_x, with_respect_to_g = reverse(f, [x, g], h)
    passed = [c == "g" for c in selection(convention, maximize, x, x.clamp(-1, 1), g)]
    assert torch.equal(with_respect_to_g, h * torch.tensor(passed))
    assert not with_respect_to_x.any()
