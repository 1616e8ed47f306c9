"""Tensor subclasses and fake tensors go through the front doors like any other tensor. Modes: test_functions.py."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

import clampgrad
from common import BOUNDS, OPERATORS, Dispatched, assert_same, tied
from oracle import CONVENTIONS, gradient_of_x

PUBLIC = [name + suffix for name in (*OPERATORS, "clip") for suffix in ("", "_")]


def bounds_of(name):
    return BOUNDS[name.rstrip("_").replace("clip", "clamp")]


# ---- __torch_function__ --------------------------------------------------------------------------


class Named(torch.Tensor):
    """A subclass that notes which functions it is given to."""

    calls = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append((function, kwargs or {}))
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", PUBLIC)
def test_a_torch_function_subclass(name, convention):
    function = partial(getattr(clampgrad, name), **bounds_of(name), gradient=convention)
    x, base = tied(40), tied(40).requires_grad_()
    Named.calls.clear()
    y = function(base.clone().as_subclass(Named))
    assert type(y) is Named
    functions = [f for f, _ in Named.calls if "clampgrad" in getattr(f, "__module__", "")]
    assert [f.__name__ for f in functions] == [name.replace("clip", "clamp")]
    (gradient,) = torch.autograd.grad(y, base, torch.ones_like(y).as_subclass(torch.Tensor))
    expected = gradient_of_x(convention, x, torch.ones_like(x), **bounds_of(name))
    assert_same(gradient.as_subclass(torch.Tensor), expected)


class Duck:
    """No tensor at all, but it knows what to do."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function, args[1:], kwargs


@pytest.mark.parametrize("name", PUBLIC)
def test_a_duck(name):
    bounds = tuple(bounds_of(name).values())
    function, args, kwargs = getattr(clampgrad, name)(Duck(), *bounds, gradient="half")
    assert callable(function)
    given = [*args, *(v for k, v in kwargs.items() if k in ("min", "max"))]
    assert [v for v in given if v is not None] == list(bounds)
    assert kwargs["gradient"] == "half"


# ---- __torch_dispatch__ --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_wrapper_sees_aten_alone(operator, convention, suffix):
    a, b, g, seen = tied(40), tied(40, seed=2), tied(40, seed=1), []
    f = partial(getattr(clampgrad, operator + suffix), **BOUNDS[operator], gradient=convention)

    def run():
        leaf = TwoTensor(a, b).requires_grad_()
        y = f(leaf.clone())
        return y, *torch.autograd.grad(y, leaf, TwoTensor(g, g))

    with Dispatched(seen.append):
        run()
    y, gradient = run()
    assert type(y) is type(gradient) is TwoTensor
    for x, result, found in ((a, y.detach().a, gradient.a), (b, y.detach().b, gradient.b)):
        assert_same(result, getattr(torch, operator)(x, **BOUNDS[operator]))
        assert_same(found, gradient_of_x(convention, x, g, **BOUNDS[operator]))
    assert seen and {f.namespace for f in seen} == {"aten"}


def test_a_wrapper_compiled():
    f = partial(clampgrad.clamp, min=0, max=1, gradient="half")
    leaf = TwoTensor(tied(40), tied(40, seed=1)).requires_grad_()
    y = torch.compile(lambda x: f(x), backend="aot_eager", fullgraph=True)(leaf)
    (gradient,) = torch.autograd.grad(y, leaf, TwoTensor(torch.ones(40), torch.ones(40)))
    for x, found in ((leaf.a, gradient.a), (leaf.b, gradient.b)):
        assert_same(found, gradient_of_x("half", x.detach(), torch.ones(40), 0, 1))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_fake_tensors(convention):
    with FakeTensorMode():
        x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        y = clampgrad.clamp(x, 0, 1, gradient=convention)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    for fake in (y, gradient):
        assert (fake.shape, fake.stride(), fake.dtype) == (x.shape, x.stride(), x.dtype)
