"""Tensor subclasses and fake tensors go through the front doors like any other
tensor. Modes: test_functions.py."""

from functools import partial

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import clampgrad
from oracle import CLAMPS, CONVENTIONS, gradient_of_x
from testing.comparing import BOUNDS, Dispatched, assert_same, random_with_ties

# ---- __torch_function__ --------------------------------------------------------------------------


class Named(torch.Tensor):
    """A subclass that notes which functions it is given to."""

    calls = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function)
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", CLAMPS)
def test_a_torch_function_subclass(operator, convention, suffix):
    name, bounds = operator + suffix, BOUNDS[operator]
    function = partial(getattr(clampgrad, name), **bounds, gradient=convention)
    x, base = random_with_ties(40), random_with_ties(40).requires_grad_()
    Named.calls.clear()
    y = function(base.clone().as_subclass(Named))
    assert type(y) is Named
    functions = [f for f in Named.calls if "clampgrad" in getattr(f, "__module__", "")]
    assert [f.__name__ for f in functions] == [name]
    (gradient,) = torch.autograd.grad(y, base, torch.ones_like(y).as_subclass(torch.Tensor))
    expected = gradient_of_x(convention, x, torch.ones_like(x), **bounds)
    assert_same(gradient.as_subclass(torch.Tensor), expected)


# ---- __torch_dispatch__ --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", CLAMPS)
def test_a_wrapper_sees_aten_alone(operator, convention, suffix):
    a, b, g, seen = (
        random_with_ties(40),
        random_with_ties(40, seed=2),
        random_with_ties(40, seed=1),
        [],
    )
    f = partial(getattr(clampgrad, operator + suffix), **BOUNDS[operator], gradient=convention)

    def run():
        leaf = TwoTensor(a, b).requires_grad_()
        y = f(leaf.clone())
        return y, *torch.autograd.grad(y, leaf, TwoTensor(g, g))

    with Dispatched(seen.append):
        run()
    y, gradient = run()
    assert type(y) is type(gradient) is TwoTensor
    for x, result, actual in ((a, y.detach().a, gradient.a), (b, y.detach().b, gradient.b)):
        assert_same(result, getattr(torch, operator)(x, **BOUNDS[operator]))
        assert_same(actual, gradient_of_x(convention, x, g, **BOUNDS[operator]))
    assert seen and {f.namespace for f in seen} == {"aten"}


def test_a_wrapper_compiled(backend):
    f = partial(clampgrad.clamp, min=0, max=1, gradient="half")
    leaf = TwoTensor(random_with_ties(40), random_with_ties(40, seed=1)).requires_grad_()
    y = torch.compile(lambda x: f(x), backend=backend, fullgraph=True)(leaf)
    (gradient,) = torch.autograd.grad(y, leaf, TwoTensor(torch.ones(40), torch.ones(40)))
    for x, actual in ((leaf.a, gradient.a), (leaf.b, gradient.b)):
        assert_same(actual, gradient_of_x("half", x.detach(), torch.ones(40), 0, 1))
