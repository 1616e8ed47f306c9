"""The documents this project started from: their numbers come out, element for element."""

from fractions import Fraction
from math import pi

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from common import eager
from oracle import TABLE


def gradient(f, x, g=1.0):
    (result,) = eager(f, [torch.tensor([float(x)])], torch.tensor([g]))
    return result.item()


# An issue report: clamp against relu6 and hardtanh.
TWINS = {
    "clamp(x, 0, 6)": (lambda x, **k: clampgrad.clamp(x, 0, 6, **k), F.relu6, (0, 6)),
    "clamp(x, -1, 1)": (lambda x, **k: clampgrad.clamp(x, -1, 1, **k), F.hardtanh, (-1, 1)),
    "clamp_min(x, 0)": (lambda x, **k: clampgrad.clamp_min(x, 0, **k), F.relu, (0,)),
    "clamp_max(x, 6)": (lambda x, **k: clampgrad.clamp_max(x, 6, **k), F.relu6, (6,)),
}


@pytest.mark.parametrize("call", TWINS)
def test_clamp_agrees_with_its_built_in_twins(call):
    ours, twin, bounds = TWINS[call]
    for x in bounds:
        assert gradient(twin, x) == 0  # what the report expects everywhere
        assert gradient(ours, x) == 0
        assert gradient(lambda x: ours(x, gradient="inclusive"), x) == 1  # what it found


# An issue report: four spellings of max(x, 0) at x = 0.
SPELLINGS = {
    "relu": F.relu,
    "maximum": lambda x: clampgrad.maximum(x, torch.tensor(0.0)),
    "clamp_min": lambda x: clampgrad.clamp_min(x, 0),
    "clamp": lambda x: clampgrad.clamp(x, min=0),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_relu_has_gradient_0_at_0(spelling):
    assert [gradient(SPELLINGS[spelling], x) for x in (-1, 0, 1)] == [0, 0, 1]


# A blog on clamp and the gradient.
@pytest.mark.parametrize(
    "convention, a_grad, b_grad",
    [
        ("min_norm", [0, 2, 1, 0], [0, 2, 3, 0]),
        ("inclusive", [1, 2, 1, 0], [1, 2, 3, 0]),  # the blog's own numbers
        ("joint", [0, 2, 1, 0], [0, 2, 3, 0]),
        ("half", [0.5, 2, 1, 0], [0.5, 2, 3, 0]),
    ],
)
def test_the_blog(convention, a_grad, b_grad):
    a = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
    b = torch.tensor([1.0, 2, 1, 2], requires_grad=True)
    c = clampgrad.clamp(a * b, 1, 5, gradient=convention)
    d = c.sum()
    d.backward()
    assert c.tolist() == [1, 4, 3, 5]
    assert d.item() == 13
    assert a.grad.tolist() == a_grad
    assert b.grad.tolist() == b_grad


# A notebook: clamp_with_grad, and what it proposes in its place.
class ClampWithGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, min, max):
        ctx.min, ctx.max = min, max
        ctx.save_for_backward(input)
        return input.clamp(min, max)

    @staticmethod
    def backward(ctx, grad):
        (input,) = ctx.saved_tensors
        return grad * (grad * (input - input.clamp(ctx.min, ctx.max)) >= 0), None, None


class ClampWithGradProposed(ClampWithGrad):
    @staticmethod
    def backward(ctx, grad):
        (input,) = ctx.saved_tensors
        delta = input - input.clamp(ctx.min, ctx.max)
        return torch.where(delta == 0, grad, torch.sign(delta)), None, None


def loss(y):
    return torch.sin(pi * y) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (clampgrad.clamp_with_grad, ClampWithGrad.apply),
        (
            lambda x, lo, hi: clampgrad.clamp(x, lo, hi, gradient="restoring"),
            ClampWithGradProposed.apply,
        ),
        (lambda x, lo, hi: clampgrad.clamp(x, lo, hi, gradient="min_norm"), F.hardtanh),
    ],
    ids=["clamp_with_grad", "proposed", "clamp"],
)
def test_the_notebook(ours, theirs, dtype):
    x = torch.linspace(-2, 2, 401, dtype=dtype)  # steps of 0.01, the bounds among them
    assert (x.abs() == 1).sum() == 2
    ones = torch.ones_like(x)
    (expected,) = eager(lambda x: loss(theirs(x, -1, 1)), [x], ones)
    (actual,) = eager(lambda x: loss(ours(x, -1, 1)), [x], ones)
    assert torch.equal(actual, expected)


def test_the_notebook_finds_one_side_without_gradient():
    """The figures of its text: descent escapes from the left and not from the right."""
    for x, expected in ((-1.5, -pi), (-0.5, 0), (1.5, 0)):
        found = gradient(lambda x: loss(clampgrad.clamp_with_grad(x, -1, 1)), x)
        assert found == pytest.approx(expected, abs=1e-6)


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
    def named(operator):
        keywords = {"gradient": key.split(",")[0]}
        if operator != "maximum":
            keywords["maximize"] = "maximize" in key
        return lambda *args: getattr(clampgrad, operator)(*args, **keywords)

    names = {op: named(op) for op in ("clamp", "clamp_min", "maximum")}
    names.update(sin=torch.sin, pi=pi, tensor=torch.tensor)
    inputs = {k: v for k, v in example.items() if k in ("x", "y", "a", "b", "lo", "hi")}
    args = [torch.tensor(v, dtype=torch.float64) for v in inputs.values()]

    def f(*args):
        return eval(example["call"], names, dict(zip(inputs, args)))

    gradients = eager(f, args, torch.ones_like(args[0]))
    expected = [torch.tensor(v, dtype=torch.float64) for v in numbers(example[key])]
    torch.testing.assert_close(gradients, expected)
