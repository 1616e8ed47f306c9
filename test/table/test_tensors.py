"""Tensors for bounds, maximum and its kind: who shares a tie, at every level, and nobody else.

test_table.py has every row; here are the promises that need more than one element.
"""

from itertools import combinations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import clampgrad
from common import assert_same, eager, tied
from oracle import EXACT, TABLE, factors, scaled

OPERATORS = TABLE["operators"]
EXTREMA = ("maximum", "minimum", "fmax", "fmin")


def call(operator, convention):
    return lambda *args: getattr(clampgrad, operator)(*args, gradient=convention)


def operands(operator, *shapes, dtype=torch.float32, nan=True):
    count = len(OPERATORS[operator]["arguments"])
    return [tied(*shape, dtype=dtype, seed=i, nan=nan) for i, shape in enumerate(shapes[:count])]


SHAPES = {
    "equal": [(6, 5), (6, 5), (6, 5)],
    "rows": [(6, 5), (5,), (1, 5)],
    "columns": [(6, 5), (6, 1), (6, 1)],
    "one number": [(6, 5), (), (1, 1)],
    "input broadcast": [(5,), (6, 5), (6, 1)],
    "all broadcast": [(6, 1, 1), (5, 1), (3,)],
    "empty": [(0, 5), (5,), (1, 5)],
}


# ---- Broadcasting: a gradient is summed back over the dimensions that were made up ---------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_broadcast(operator, shapes, convention):
    args = operands(operator, *SHAPES[shapes], dtype=torch.float64)
    shape = torch.broadcast_shapes(*(a.shape for a in args))
    g = torch.randint(1, 9, shape).double()
    names = OPERATORS[operator]["arguments"]
    for chosen in [c for n in range(1, len(names) + 1) for c in combinations(range(len(names)), n)]:
        leaves = [a.clone().requires_grad_(i in chosen) for i, a in enumerate(args)]
        y = call(operator, convention)(*leaves)
        shares = factors(
            operator,
            "tensors",
            convention,
            [a.expand(shape) for a in args],
            [names[i] for i in chosen],
        )
        gradients = torch.autograd.grad(y, [leaves[i] for i in chosen], g)
        for i, gradient in zip(chosen, gradients):
            expected = scaled(g, shares[i]).sum_to_size(args[i].shape)
            torch.testing.assert_close(gradient, expected)


# ---- What is being differentiated, level by level ------------------------------------------------

POINTS = {
    operator: torch.tensor([p for row in OPERATORS[operator]["rows"] for p in row["points"]]).T
    for operator in OPERATORS
}


def subsets(operator):
    names = OPERATORS[operator]["arguments"]
    for size in range(1, len(names) + 1):
        for chosen in combinations(range(len(names)), size):
            yield chosen, [names[i] for i in chosen]


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", OPERATORS)
def test_compiled(operator, convention):
    args = list(POINTS[operator])
    for chosen, names in subsets(operator):
        torch._dynamo.reset()
        f = torch.compile(call(operator, convention), backend="aot_eager", fullgraph=True)
        leaves = [a.clone().requires_grad_(i in chosen) for i, a in enumerate(args)]
        y = f(*leaves)
        shares = factors(operator, "tensors", convention, args, names)
        gradients = torch.autograd.grad(y, [leaves[i] for i in chosen], torch.ones_like(y))
        for i, gradient in zip(chosen, gradients):
            torch.testing.assert_close(gradient, shares[i].float())


# ---- The same value on both sides, and what depends on it ----------------------------------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", EXTREMA)
def test_of_one_tensor_with_itself(operator, convention):
    """max(x, x) is x: a derivative of 1, however the tie is shared."""
    x = torch.tensor([-2.0, 0.0, 3.0])
    (gradient,) = eager(lambda x: call(operator, convention)(x, x), [x], torch.ones(3))
    assert gradient.tolist() == [1, 1, 1]
    if convention == "min_norm":
        f = call(operator, convention)
        (gradient,) = eager(lambda x: f(x, x.detach()), [x], torch.ones(3))
        assert gradient.tolist() == [0, 0, 0]


@pytest.mark.parametrize("convention", EXACT)
def test_the_first_ppo_update(convention):
    """The ratio is 1 everywhere and both surrogates are equal: the plain policy gradient."""
    logits = torch.randn(20, dtype=torch.float64, requires_grad=True)
    advantage = torch.randn(20, dtype=torch.float64)
    ratio = (logits - logits.detach()).exp()
    clipped = clampgrad.clamp(ratio, 0.8, 1.2, gradient=convention)
    loss = -call("minimum", convention)(ratio * advantage, clipped * advantage).mean()
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, -advantage / 20)


# ---- Derivatives away from ties ------------------------------------------------------------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradcheck(operator, convention):
    """Broadcast arguments, none closer to another than 0.05."""
    x = torch.linspace(-2.3, 2.1, 12, dtype=torch.float64).reshape(3, 4)
    others = [
        torch.tensor([-1.05, -0.65, -1.55, 0.25], dtype=torch.float64),
        torch.tensor([[0.75], [1.15], [-0.15]], dtype=torch.float64),
    ]
    args = [x, *others][: len(OPERATORS[operator]["arguments"])]
    args = [a.clone().requires_grad_() for a in args]
    f = call(operator, convention)
    assert gradcheck(
        f, args, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert gradgradcheck(
        lambda *a: f(*a).sin(), args, check_fwd_over_rev=True, check_batched_grad=True
    )


# ---- What makes no sense -------------------------------------------------------------------------


def test_mixed_bounds_in_place_are_cast_once():
    """After both, as torch does with two Tensors."""
    x, lo, hi = (
        torch.tensor([1, 2], dtype=torch.uint8),
        torch.tensor([1, 1]),
        torch.tensor([-1, -1]),
    )
    expected = torch.clamp_(x.clone(), lo, hi)
    assert_same(clampgrad.clamp_(x.clone(), lo, -1), expected)
    assert_same(clampgrad.clamp_(x.clone(), 1, hi), expected)
