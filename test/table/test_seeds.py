"""clampgrad reproduces the numbers of the documents that it started from, element for element."""

from fractions import Fraction
from functools import partial
from math import pi

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from oracle import TABLE
from testing.comparing import eager


def gradient(f, x, g=1.0):
    (result,) = eager(f, [torch.tensor([float(x)])], torch.tensor([g]))
    return result.item()


# An issue report: clamp against relu6 and hardtanh.
@pytest.mark.parametrize(
    "name, bounds, twin",
    [
        ("clamp", (0, 6), F.relu6),
        ("clamp", (-1, 1), F.hardtanh),
        ("clamp_min", (0,), F.relu),
        ("clamp_max", (6,), F.relu6),
    ],
)
def test_clamp_agrees_with_its_built_in_twins(name, bounds, twin):
    clamp = getattr(clampgrad, name)
    for x in bounds:
        # What the report expects everywhere, and what it found.
        assert gradient(twin, x) == gradient(lambda x: clamp(x, *bounds), x) == 0
        assert gradient(lambda x: clamp(x, *bounds, gradient="inclusive"), x) == 1


# An issue report: four spellings of max(x, 0) at x = 0.
def test_every_spelling_of_relu_has_gradient_0_at_0():
    for spelling in (
        F.relu,
        lambda x: clampgrad.maximum(x, torch.tensor(0.0)),
        lambda x: clampgrad.clamp_min(x, 0),
        lambda x: clampgrad.clamp(x, min=0),
    ):
        assert [gradient(spelling, x) for x in (-1, 0, 1)] == [0, 0, 1]


def test_the_blog():
    """A blog on clamp and the gradient, written for PyTorch 2.13 or earlier."""
    a = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
    b = torch.tensor([1.0, 2, 1, 2], requires_grad=True)
    c = clampgrad.clamp(a * b, 1, 5, gradient="inclusive")
    c.sum().backward()
    assert (c.tolist(), c.sum().item()) == ([1, 4, 3, 5], 13)
    assert (a.grad.tolist(), b.grad.tolist()) == ([1, 2, 1, 0], [1, 2, 3, 0])


# A notebook: clamp_with_grad, its own proposal, and clamp, each as the
# gradient from g and x - clamp(x).
FORMULAS = {
    "with_grad": lambda g, delta: g * (g * delta >= 0),
    "restoring": lambda g, delta: torch.where(delta == 0, g, delta.sign()),
    "inclusive": lambda g, delta: g * (delta == 0),
}


def loss(y):
    return torch.sin(pi * y) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("convention", FORMULAS)
def test_the_notebook(convention, dtype):
    x = torch.linspace(-2, 2, 401, dtype=dtype)  # steps of 0.01, the bounds among them
    assert (x.abs() == 1).sum() == 2
    y = x.clamp(-1, 1)
    (g,) = eager(loss, [y], torch.ones_like(x))
    (actual,) = eager(lambda x: clampgrad.clamp(x, -1, 1, gradient=convention), [x], g)
    assert torch.equal(actual, FORMULAS[convention](g, x - y))


def test_the_notebook_finds_one_side_without_gradient():
    """The figures of its text: descent escapes from the left and not from the right."""
    for x, expected in ((-1.5, -pi), (-0.5, 0), (1.5, 0)):
        slope = gradient(lambda x: loss(clampgrad.clamp_with_grad(x, -1, 1)), x)
        assert slope == pytest.approx(expected, abs=1e-6)


# The examples of the contract.
def numbers(values):
    if isinstance(values, list):
        return [numbers(v) for v in values]
    return {"pi": pi, "-pi": -pi}[values] if "pi" in str(values) else float(Fraction(values))


EXAMPLES = [
    pytest.param(example, key, id=f"{example['call']}, {key}")
    for example in TABLE["examples"]
    for key in example
    if key.split(",")[0] in TABLE["conventions"]
]


@pytest.mark.parametrize("example, key", EXAMPLES)
def test_examples(example, key):
    keywords = {"gradient": key.split(",")[0]} | ({"maximize": True} if "maximize" in key else {})
    names = {"sin": torch.sin, "pi": pi, "tensor": torch.tensor}
    for name in ("clamp", "clamp_min", "maximum"):
        names[name] = partial(getattr(clampgrad, name), **keywords)
    inputs = {k: v for k, v in example.items() if k in ("x", "y", "a", "b", "lo", "hi")}
    args = [torch.tensor(v, dtype=torch.float64) for v in inputs.values()]

    def f(*args):
        return eval(example["call"], names, dict(zip(inputs, args)))

    gradients = eager(f, args, torch.ones_like(args[0]))
    expected = [torch.tensor(v, dtype=torch.float64) for v in numbers(example[key])]
    torch.testing.assert_close(gradients, expected)
