"""Modules: torch.nn's own with a named gradient."""

import re
from functools import partial

import pytest
import torch
from torch import nn

import clampgrad
from oracle import gradient_of_x
from testing.comparing import assert_same, eager, random_with_ties, saved_and_loaded

TWINS = [
    (nn.ReLU, clampgrad.nn.ReLU, (), {"min": 0}),
    (nn.ReLU6, clampgrad.nn.ReLU6, (), {"min": 0, "max": 6}),
    (nn.Hardtanh, clampgrad.nn.Hardtanh, (-1, 0.5), {"min": -1, "max": 0.5}),
]
twins = pytest.mark.parametrize("torch_class, twin_class, arguments, bounds", TWINS)


@twins
@pytest.mark.parametrize("inplace", [False, True])
def test_a_twin_is_the_same_module(torch_class, twin_class, arguments, bounds, inplace):
    a, b = torch_class(*arguments, inplace=inplace), twin_class(*arguments, inplace=inplace)
    assert isinstance(b, torch_class)
    assert re.sub(r"(, )?gradient='min_norm'", "", repr(b)) == repr(a)
    assert a.state_dict() == b.state_dict()
    assert b.inplace is inplace
    for x in (
        random_with_ties(50),
        random_with_ties(50, dtype=torch.bfloat16),
        torch.arange(-2, 9),
    ):
        assert_same(b(x.clone()), a(x.clone()))
        given = x.clone()
        assert (b(given) is given) == inplace
    # If x is NaN, torch's own modules differ: their gradient is g or 0.
    x, g = random_with_ties(50, nan=False), random_with_ties(50, seed=1)
    x.mul_(6)
    expected = eager(lambda x: a(x.clone()), [x], g)
    assert_same(eager(lambda x: b(x.clone()), [x], g), expected)


def test_what_no_module_is_made_of():
    with pytest.raises(ValueError, match="at least one"):
        clampgrad.nn.Clamp()
    for bad in ({"gradient": "typo"}, {"gradient": "half", "maximize": True}):
        for module in (*(row[1] for row in TWINS), partial(clampgrad.nn.Clamp, 0)):
            with pytest.raises(ValueError):
                module(**bad)


def test_clamp():
    ascent = clampgrad.nn.Clamp(0, 1, gradient="with_grad", maximize=True)
    assert repr(ascent) == "Clamp(min=0, max=1, gradient='with_grad', maximize=True)"
    (gradient,) = eager(ascent, [torch.tensor([-1.0, 0.5, 2.0])], torch.ones(3))
    assert gradient.tolist() == [1, 1, 0]

    for one_bound, expected in (({"min": 0}, [0, 2]), ({"max": 1}, [-1, 1])):
        assert clampgrad.nn.Clamp(**one_bound)(torch.tensor([-1, 2])).tolist() == expected

    learned = clampgrad.nn.Clamp(torch.zeros(2), nn.Parameter(torch.ones(2)), inplace=True)
    assert list(learned.state_dict()) == ["max", "min"]
    assert repr(learned) == "Clamp(min=(2,), max=(2,), inplace=True, gradient='min_norm')"
    given = torch.tensor([2.0, 0.5])
    assert learned(given) is given
    given.sum().backward()
    assert learned.max.grad.tolist() == [1, 0]


# ---- What torch.nn's own modules do --------------------------------------------------------------


@pytest.mark.of_kernels("torch may have no sparse Tensors there")
def test_a_layout_without_the_gradient_that_is_asked_for():
    """It is an error: torch's own gradient never replaces the named one."""
    x = torch.eye(3).to_sparse().requires_grad_()
    with pytest.raises(NotImplementedError, match="gradient='inclusive' of a sparse_coo tensor"):
        clampgrad.relu(x, gradient="inclusive")
    assert clampgrad.relu(x.detach(), gradient="inclusive").layout == torch.sparse_coo
    assert clampgrad.relu(x, gradient="joint").layout == torch.sparse_coo
    with pytest.raises(ValueError, match="typo"):
        clampgrad.relu(x, gradient="typo")


@twins
def test_functions_beside_the_modules(torch_class, twin_class, arguments, bounds):
    function = getattr(clampgrad, twin_class.__name__.lower())
    x, g = random_with_ties(50) * 6, random_with_ties(50, seed=1)
    (actual,) = eager(lambda x: function(x, *arguments, gradient="half"), [x], g)
    assert_same(actual, gradient_of_x("half", x, g, **bounds))
    given = x.clone()
    assert function(given, *arguments, inplace=True) is given
    assert_same(given, torch_class(*arguments)(x))


@twins
def test_a_convention_is_a_keyword(torch_class, twin_class, arguments, bounds):
    """By position it would be `inplace`, and write the input."""
    x = torch.tensor([-9.0, 0.0])
    by_position = (0, 1, "inclusive") if torch_class is nn.Hardtanh else ("inclusive",)
    for call in (partial(getattr(clampgrad, twin_class.__name__.lower()), x), twin_class):
        with pytest.raises(TypeError, match="gradient='inclusive'"):
            call(*by_position)
    assert x.tolist() == [-9, 0]


@pytest.mark.parametrize(
    "bounds, error", [((1.0, -1.0), ValueError), ((None, 1.0), TypeError), ((0.0, None), TypeError)]
)
def test_bounds_that_hardtanh_refuses(bounds, error):
    def set_in(module):
        module.min_val, module.max_val = bounds
        return lambda x, *_: module(x)

    modules = nn.Hardtanh(), clampgrad.nn.Hardtanh(), clampgrad.nn.convert(nn.Hardtanh())
    for function in (nn.functional.hardtanh, clampgrad.hardtanh, *map(set_in, modules)):
        with pytest.raises(error):
            function(torch.zeros(2, requires_grad=True), *bounds)


@pytest.mark.parametrize("alias, name", [("torch_2_13", "inclusive"), ("ste", "straight_through")])
def test_an_alias_is_shown_as_its_convention(alias, name):
    assert repr(clampgrad.nn.ReLU6(gradient=alias)) == f"ReLU6(gradient='{name}')"


def test_symbolic_trace():
    model = clampgrad.nn.set_gradient(
        nn.Sequential(nn.ReLU(), nn.ReLU6(), nn.Hardtanh()), "inclusive"
    )
    model.append(clampgrad.nn.Clamp(0, 1, gradient="half"))
    traced = torch.fx.symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert called == [clampgrad.relu, clampgrad.relu6, clampgrad.hardtanh, clampgrad.clamp]
    x, g = random_with_ties(50), random_with_ties(50, seed=1)
    assert_same(eager(traced, [x], g)[0], eager(model, [x], g)[0])


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_trace_keeps_the_gradient(recorded):
    example = torch.ones(4, requires_grad=recorded)
    traced = torch.jit.trace(clampgrad.nn.Clamp(0, 1, gradient="half"), example)
    for module in (traced, saved_and_loaded(traced, torch.jit.save, torch.jit.load)):
        x = torch.tensor([0.0, 0.5, 1.0, 2.0], requires_grad=True)
        assert torch.autograd.grad(module(x).sum(), x)[0].tolist() == [0.5, 1, 0.5, 0]
