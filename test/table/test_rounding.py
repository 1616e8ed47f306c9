"""A bound is compared as the forward converts it: rounded to the dtype of the result."""

from fractions import Fraction

import pytest
import torch

import clampgrad
from common import assert_same, eager, front_doors, vjp
from oracle import CONVENTIONS, PSEUDO, TABLE, gradient_of_x

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


def compiled(f, args, g):
    return eager(torch.compile(f, backend="aot_eager", fullgraph=True), args, g)


@pytest.mark.parametrize("dtype, bound", UNREPRESENTABLE, ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_an_element_equal_to_the_rounded_bound_is_at_the_bound(convention, dtype, bound):
    at = torch.tensor(bound, dtype=dtype)
    assert at.item() != bound
    infinity = torch.tensor(torch.inf, dtype=dtype)
    x = torch.stack([torch.nextafter(at, -infinity), at, torch.nextafter(at, infinity)])
    g = torch.ones_like(x)
    for operator, names in (("clamp_max", ["max"]), ("clamp_min", ["min"])):
        expected = gradient_of_x(convention, x, g, **{names[0]: bound})
        if convention not in PSEUDO:
            (tie,) = (r for r in TABLE["operators"][operator]["rows"] if len(r["active"]) > 1)
            assert expected[1] == float(Fraction(tie["numbers"][convention]))
        for mode in (eager, vjp):
            for name, door in front_doors(operator).items():
                (gradient,) = mode(lambda x: door(x, bound, gradient=convention), [x], g)
                assert_same(gradient, expected, name)
    expected = gradient_of_x(convention, x, g, min=bound, max=bound)
    (gradient,) = eager(lambda x: clampgrad.clamp(x, bound, bound, gradient=convention), [x], g)
    assert_same(gradient, expected, "min = max")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("convention", ["min_norm", "inclusive", "half"])
def test_a_graph_input_too(convention, dtype):
    x = torch.tensor([0.0, 0.1, 1.0], dtype=dtype)
    g = torch.ones_like(x)
    torch._dynamo.reset()
    (gradient,) = compiled(lambda x: clampgrad.clamp(x, max=0.1, gradient=convention), [x], g)
    assert_same(gradient, gradient_of_x(convention, x, g, max=0.1))


def test_an_integer_of_a_graph():
    """Its value is symbolic while it is traced."""
    torch._dynamo.reset()
    f = torch.compile(lambda x, n: clampgrad.clamp(x, max=n), backend="aot_eager", dynamic=True)
    for bound in (5, 257, 7):
        x = torch.tensor([0, bound, 2 * bound], dtype=torch.bfloat16)
        (gradient,) = eager(lambda x, n=bound: f(x, n), [x], torch.ones_like(x))
        assert gradient.tolist() == [1, 0, 0]


@pytest.mark.parametrize("dtype, bound", UNREPRESENTABLE, ids=str)
def test_mingrad_operators(dtype, bound):
    x = torch.tensor([-torch.inf, bound, torch.inf], dtype=dtype)
    g = torch.ones_like(x)
    for name in ("min", "max"):
        operator = getattr(torch.ops.clampgrad, f"clamp_{name}_mingrad")
        (gradient,) = eager(lambda x: operator(x, bound), [x], g)
        assert_same(gradient, gradient_of_x("min_norm", x, g, **{name: bound}))
