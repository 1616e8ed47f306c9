"""Tensor subclasses and fake tensors go through the front doors like any other tensor. Modes: test_functions.py."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing

import clampgrad
from common import BOUNDS, OPERATORS, assert_same, tied
from oracle import CONVENTIONS, gradient_of_x

PUBLIC = [
    name + suffix for name in ("clamp", "clip", "clamp_min", "clamp_max") for suffix in ("", "_")
]


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
    x = tied(40)
    base = x.clone().requires_grad_()
    Named.calls.clear()
    y = getattr(clampgrad, name)(
        base.clone().as_subclass(Named), **bounds_of(name), gradient=convention
    )
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


class Logged(torch.Tensor):
    """A wrapper that notes every operator below autograd."""

    operators = []

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner):
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        cls.operators.append(function)

        def unwrap(x):
            return x.inner if isinstance(x, cls) else x

        def wrap(x):
            return cls(x) if isinstance(x, torch.Tensor) else x

        tree_map = torch.utils._pytree.tree_map
        result = function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return return_and_correct_aliasing(function, args, kwargs or {}, tree_map(wrap, result))


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_wrapper_sees_aten_alone(operator, convention, suffix):
    x, g = tied(40), tied(40, seed=1)
    leaf = Logged(x.clone().requires_grad_())
    Logged.operators.clear()
    function = getattr(clampgrad, operator + suffix)
    y = function(leaf.clone(), **BOUNDS[operator], gradient=convention)
    assert type(y) is Logged
    (gradient,) = torch.autograd.grad(y, leaf, Logged(g))
    assert type(gradient) is Logged
    assert_same(y.detach().inner, getattr(torch, operator)(x, **BOUNDS[operator]))
    assert_same(gradient.inner, gradient_of_x(convention, x, g, **BOUNDS[operator]))
    assert {f.namespace for f in Logged.operators} == {"aten"}


def test_two_tensors_compiled():
    torch._dynamo.reset()
    a, b = tied(40), tied(40, seed=1)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x):
        return clampgrad.clamp(x, 0, 1, gradient="half")

    leaf = TwoTensor(a, b).requires_grad_()
    ones = torch.ones(40)
    (gradient,) = torch.autograd.grad(f(leaf), leaf, TwoTensor(ones, ones))
    assert_same(gradient.a, gradient_of_x("half", a, ones, 0, 1))
    assert_same(gradient.b, gradient_of_x("half", b, ones, 0, 1))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_fake_tensors(convention):
    with FakeTensorMode():
        x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        y = clampgrad.clamp(x, 0, 1, gradient=convention)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    for fake in (y, gradient):
        assert (fake.shape, fake.stride(), fake.dtype) == (x.shape, x.stride(), x.dtype)
