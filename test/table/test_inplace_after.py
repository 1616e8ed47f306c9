"""In place: the gradient is fixed before input or output change, and nothing changes without one."""

import pytest
import torch

import clampgrad
from common import DTYPES, OPERATORS, assert_same, eager, tied
from oracle import CONVENTIONS, gradient_of_x

BOUNDS = {"clamp": {"min": 0, "max": 1}, "clamp_min": {"min": 0}, "clamp_max": {"max": 1}}
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows sliced": lambda x: x[1::2],
    "columns sliced": lambda x: x[:, ::3],
    "one column": lambda x: x[:, 1],
    "one element": lambda x: x[2, 3],
    "empty": lambda x: x[:0],
}


def changed(x):
    with torch.no_grad():  # a change that autograd is told of by the version counter alone
        x.fill_(99)


@pytest.mark.parametrize("change", ["input", "output", "both"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_changed_after_the_call(convention, layout, change):
    x = tied(10, 12)
    for operator in OPERATORS:
        for dtype in DTYPES:
            # The forward has to be done with its input before that is overwritten.
            base = x.to(dtype).requires_grad_()
            view = LAYOUTS[layout](base.clone())
            y = getattr(clampgrad, operator)(view, **BOUNDS[operator], gradient=convention)
            if change != "output":
                changed(view)
            if change != "input":
                changed(y)
            g = tied(*y.shape, dtype=dtype, seed=1)
            (gradient,) = torch.autograd.grad(y, base, g)
            plain = LAYOUTS[layout](x.to(dtype))
            expected = torch.zeros_like(gradient)
            LAYOUTS[layout](expected).copy_(gradient_of_x(convention, plain, g, **BOUNDS[operator]))
            assert_same(gradient, expected, f"{operator} {dtype}")


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


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_arithmetic_in_place_after_the_call(convention):
    """Here autograd goes along: y * 3 in place has gradient 3."""
    x = tied(64)
    base = x.clone().requires_grad_()
    z = base.clone()
    y = clampgrad.clamp(z, 0, 1, gradient=convention)
    y.mul_(3)
    z.mul_(5)
    ones = torch.ones_like(x)
    (gradient,) = torch.autograd.grad([y, z], base, [ones, ones])
    assert_same(gradient, 5 + gradient_of_x(convention, x, 3 * ones, 0, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_place_on_a_view(convention, layout):
    """The base gets the gradient: through the clamp where the view is, untouched elsewhere."""
    x = tied(10, 12)
    g = torch.ones_like(x)
    for operator in OPERATORS:
        base = x.clone().requires_grad_()
        copy = base.clone()
        getattr(clampgrad, operator + "_")(
            LAYOUTS[layout](copy), **BOUNDS[operator], gradient=convention
        )
        (gradient,) = torch.autograd.grad(copy, base, g)
        expected = torch.ones_like(x)
        part = LAYOUTS[layout](expected)
        part.copy_(gradient_of_x(convention, LAYOUTS[layout](x), part.clone(), **BOUNDS[operator]))
        assert_same(gradient, expected, operator)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_place_twice(convention):
    x = tied(64, nan=False).clamp(-9, 9)
    base = x.clone().requires_grad_()
    y = base.clone()
    clampgrad.clamp_(y, 0, 1, gradient=convention)
    clampgrad.clamp_(y, 0, 0.5, gradient=convention)
    g = torch.ones_like(x)
    (gradient,) = torch.autograd.grad(y, base, g)
    inner = gradient_of_x(convention, x.clamp(0, 1), g, 0, 0.5)
    assert_same(gradient, gradient_of_x(convention, x, inner, 0, 1))


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
