"""A bound is compared as the forward converts it: rounded to the dtype of the result."""

from itertools import product

import pytest
import torch

import clampgrad
from oracle import CLAMPS
from testing.comparing import assert_same, eager
from testing.matrix.inputs import vector
from testing.matrix.reference import ARGUMENTS, GRADIENTS
from testing.matrix.run import Cell, check_all

# A bound that the dtype cannot hold.
UNREPRESENTABLE = [
    (torch.bfloat16, 0.1),
    (torch.float16, 0.1),
    (torch.float32, 0.1),
    (torch.float64, 2**53 + 1),
    (torch.float32, 2**24 + 1),
    (torch.float16, 2049),
    (torch.bfloat16, 257),
    (torch.float16, 1e-8),  # rounds to 0
    (torch.float32, 1e-60),
]
FORMS = ("function", "in place", "torch.ops", "mingrad", "pinned function")


def at_the_bound(operator, dtype, bound):
    """An element that is equal to the rounded bound, and one on each side."""
    at, infinity = torch.tensor([bound, torch.inf], dtype=dtype)
    assert at.item() != bound
    x = torch.stack([torch.nextafter(at, -infinity), at, torch.nextafter(at, infinity)])
    name = str(dtype).removeprefix("torch.")
    return vector(x.tolist(), name), *[bound] * (len(ARGUMENTS[operator]) - 1)


@pytest.mark.parametrize("dtype, bound", UNREPRESENTABLE, ids=str)
@pytest.mark.parametrize("operator", CLAMPS)
def test_an_element_equal_to_the_rounded_bound_is_at_the_bound(operator, dtype, bound):
    args = at_the_bound(operator, dtype, bound)
    for gradient, form, context in product(GRADIENTS, FORMS, ("plain", "vjp")):
        check_all([Cell(operator, args, *gradient, form=form, context=context)])


def test_an_integer_of_a_graph(backend):
    """Its value is symbolic while it is traced."""
    f = torch.compile(lambda x, n: clampgrad.clamp(x, max=n), backend=backend, dynamic=True)
    for bound in (5, 257, 7):
        x = torch.tensor([0, bound, 2 * bound], dtype=torch.bfloat16)
        (gradient,) = eager(lambda x, n=bound: f(x, n), [x], torch.ones_like(x))
        assert gradient.tolist() == [1, 0, 0]


def test_an_integer_that_float64_does_not_hold():
    """It is rounded once: through float64 it would become 2**60."""
    x = torch.tensor([2.0**60 + 2.0**37], requires_grad=True)
    n = 2**60 + 2**36 + 1
    y = clampgrad.clamp(x, max=n, gradient="inclusive")
    assert y.item() == torch.clamp(x, max=n).item() == x.item()
    assert torch.autograd.grad(y, x)[0].item() == 1


@pytest.mark.parametrize("convention", ["min_norm", "inclusive", "with_grad"])
def test_a_number_of_numpy_beside_a_wider_tensor(convention):
    """The first of the two clamps rounds it, as it rounds a Python number."""
    number = pytest.importorskip("numpy").float32(0.1)
    x, hi = torch.tensor([0.0, 0.1, 0.2], dtype=torch.bfloat16), torch.full((3,), 0.1)

    def gradients(lo):
        return eager(
            lambda x, hi: clampgrad.clamp(x, lo, hi, gradient=convention), [x, hi], torch.ones(3)
        )

    assert_same(gradients(number), gradients(float(number)))
