"""In place: the gradient is fixed before input or output change, and nothing changes without one."""

import pytest
import torch

import clampgrad
from common import BOUNDS, assert_same, eager, tied
from oracle import CONVENTIONS, gradient_of_x


def changed(x):
    with torch.no_grad():  # a change that autograd is told of by the version counter alone
        x.fill_(99)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_changed_after_a_call_that_no_kernel_takes(convention):
    """Bounds of NaN, and 16 dimensions whose order no integer holds."""
    nan = torch.nan
    x = torch.randn([2] * 16).transpose(0, 15)
    low, high = torch.full_like(x, -0.5).contiguous(), torch.full_like(x, 0.5).contiguous()
    calls = {
        "min": (x[0, 0], lambda m, x: m(x, nan, 1, gradient=convention)),
        "max": (x[0, 0], lambda m, x: m(x, 0, nan, gradient=convention)),
        "Tensors": (x, lambda m, x: m(x, low, high, gradient=convention)),
    }
    for name, (x, call) in calls.items():
        for function in (clampgrad.clamp, clampgrad.clamp_):
            base = x.clone().requires_grad_()
            z = base.clone()
            y = call(function, z)
            expected = torch.autograd.grad(y.sum(), base, retain_graph=True)[0]
            changed(z)
            changed(y)
            assert_same(torch.autograd.grad(y, base, torch.ones_like(y))[0], expected, name)


@pytest.mark.parametrize("part", [slice(None), slice(1), slice(0)], ids=str)
@pytest.mark.parametrize("name", ["clamp_", "clamp_min_", "clamp_max_"])
def test_in_place_is_noticed_by_those_who_saved_the_value(name, part):
    """exp saves its result; once that has changed, its backward has to refuse."""
    bounds = BOUNDS[name.rstrip("_")]
    for function in (
        getattr(clampgrad, name),
        getattr(torch.ops.clampgrad, name),
        getattr(torch.ops.clampgrad, name.rstrip("_") + "_mingrad_"),
    ):
        x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        y = x.exp()
        before = y._version
        function(y[part], **bounds)
        assert y._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("change", ["input", "output"])
@pytest.mark.parametrize(
    "how, convention",
    [(how, c) for how in ("func.vjp", "compile") for c in CONVENTIONS] + [("mingrad", "min_norm")],
)
def test_elsewhere_it_works_or_it_raises(how, convention, change):
    """Autograd's ordinary rule. What must not happen is a gradient that is wrong and silent."""
    x = tied(64)
    g = torch.ones_like(x)

    def f(x):
        z = x.clone()
        if how == "mingrad":
            y = torch.ops.clampgrad.clamp_mingrad(z, 0, 1)
        else:
            y = clampgrad.clamp(z, 0, 1, gradient=convention)
        (z if change == "input" else y).mul_(2)
        return y

    try:
        if how == "func.vjp":
            (gradient,) = torch.func.vjp(f, x)[1](g)
        elif how == "compile":
            torch._dynamo.reset()
            (gradient,) = eager(torch.compile(f, backend="aot_eager", fullgraph=True), [x], g)
        else:
            (gradient,) = eager(f, [x], g)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        incoming = g if change == "input" else 2 * g
        assert_same(gradient, gradient_of_x(convention, x, incoming, 0, 1))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("root", [lambda y: y, lambda y: y[:]], ids=["tensor", "view"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_place_where_a_hook_raises(convention, root, nth):
    """Nothing is written that has no gradient, whichever of the tensors that are saved it raises for."""
    zeros, ones = torch.zeros(3), torch.ones(3)
    for bounds in ((0, 1), (zeros, ones), (zeros, 1), (None, 1)):
        saved = []

        def full(t):
            saved.append(t)
            if len(saved) == nth:
                raise OSError("disk full")
            return t

        x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
        y = root(x * 1)
        try:
            with torch.autograd.graph.saved_tensors_hooks(full, lambda t: t):
                clampgrad.clamp_(y, *bounds, gradient=convention)
        except OSError:
            assert (y.tolist(), y._version) == ([-1, 0.5, 2], 0)
        else:
            assert len(saved) < nth
            assert y.tolist() == [0 if bounds[0] is not None else -1, 0.5, 1]
