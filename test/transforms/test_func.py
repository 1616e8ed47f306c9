"""Every functorch transform follows the table, alone and nested, with no loop over samples."""

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import clampgrad
from common import BOUNDS, OPERATORS, assert_same, tied
from oracle import CONVENTIONS, EXACT, gradient_of_x

NO_FORWARD_MODE = ("with_grad", "restoring")
LINEAR = tuple(c for c in CONVENTIONS if c not in NO_FORWARD_MODE)


@pytest.fixture(autouse=True)
def no_loop_over_samples():
    """Without a batching rule vmap warns and loops over the samples: an error here."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def test_the_loop_would_be_noticed():
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda x: torch.ops.aten.nonzero_static(x, size=1))(torch.eye(3))


def functions(convention):
    """Every operator under a convention, with its bounds: f(x)."""
    for operator, bounds in BOUNDS.items():
        for name in (operator, operator + "_"):

            def f(x, name=name, bounds=bounds):
                x = x.clone() if name.endswith("_") else x
                return getattr(clampgrad, name)(x, **bounds, gradient=convention)

            yield name, bounds, f
        if convention == "min_norm":
            function = getattr(torch.ops.clampgrad, operator + "_mingrad")
            yield operator + "_mingrad", bounds, lambda x, f=function, b=bounds: f(x, **b)


def ones(x):
    return torch.ones_like(x)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_grad_and_vmap_of_grad(convention):
    x = tied(40)
    for name, bounds, f in functions(convention):
        expected = gradient_of_x(convention, x, ones(x), **bounds)
        assert_same(grad(lambda x: f(x).sum())(x), expected, name)
        assert_same(vmap(grad(f))(x), expected, name)
        rows = vmap(grad(lambda x: f(x).sum()))(x.view(5, 8))
        assert_same(rows, expected.view(5, 8), name)
        rows = vmap(grad(lambda x: f(x).sum()), in_dims=1, out_dims=1)(x.view(5, 8))
        assert_same(rows, expected.view(5, 8), name)
        twice = vmap(vmap(grad(f)))(x.view(5, 8))
        assert_same(twice, expected.view(5, 8), name)


@pytest.mark.parametrize("convention", EXACT)
def test_second_order(convention):
    """sin(clamp(x)) has the second derivative -sin(y) dy/dx dy/dx, at ties too."""
    x = tied(30, nan=False).clamp(-9, 9).double()
    for name, bounds, f in functions(convention):

        def slope(x):
            return grad(lambda x: f(x).sin())(x)

        factor = gradient_of_x(convention, x, ones(x), **bounds)
        y = x.clamp(bounds.get("min"), bounds.get("max"))
        expected = -y.sin() * factor * factor
        assert_close = torch.testing.assert_close
        assert_close(vmap(slope)(x), y.cos() * factor, msg=name)
        assert_close(vmap(grad(slope))(x), expected, msg="grad of grad " + name)
        forward = vmap(lambda x: jvp(slope, (x,), (torch.ones_like(x),))[1])
        assert_close(forward(x), expected, msg="jvp of grad " + name)
        reverse = vmap(grad(lambda x: jvp(lambda x: f(x).sin(), (x,), (torch.ones_like(x),))[1]))
        assert_close(reverse(x), expected, msg="grad of jvp " + name)
        assert_close(hessian(lambda x: f(x).sin().sum())(x), expected.diag(), msg="hessian " + name)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_batched_incoming_gradients_are_differentiated(convention):
    """The second order of one row is that of a call of its own."""
    x, g, gg = tied(40), tied(3, 40, seed=1), tied(3, 40, seed=2)
    for name, _, f in functions(convention):
        leaf, rows = x.clone().requires_grad_(), g.clone().requires_grad_()
        y = f(leaf)
        (batched,) = torch.autograd.grad(y, leaf, rows, is_grads_batched=True, create_graph=True)
        alone = [torch.autograd.grad(y, leaf, row, create_graph=True)[0] for row in rows]
        (expected,) = torch.autograd.grad(torch.stack(alone), rows, gg)
        assert_same(torch.autograd.grad(batched, rows, gg)[0], expected, name)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_reverse_over_reverse_under_vmap(convention):
    x, g = tied(12), tied(3, 12, seed=1)
    for name, _, f in functions(convention):

        def pulled(g):
            return vjp(f, x)[1](g)[0]

        expected = torch.stack([vjp(pulled, row)[1](ones(row))[0] for row in g])
        assert_same(grad(lambda g: vmap(pulled)(g).sum())(g), expected, name)
        twice = jacrev(jacrev(lambda x: (f(x) ** 2).sum()))(x)
        row = torch.autograd.functional.hessian(lambda x: (f(x) ** 2).sum(), x)
        assert_same(twice, row, name)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_closed_over_parameter_keeps_its_gradient(convention):
    """x is clamped at the inner level, and depends on w of the outer one."""
    x = tied(20, nan=False).clamp(-9, 9)
    for name, bounds, f in functions(convention):
        w = torch.nn.Parameter(torch.ones(20))
        _, pull = vjp(lambda x: f(x * w), x)
        (gradient_x,) = pull(ones(x))
        chosen = gradient_of_x(convention, x, ones(x), **bounds)
        assert_same(gradient_x.detach(), chosen, name)
        # What x gets is w times the chosen gradient, and that does not depend on w.
        (gradient_w,) = torch.autograd.grad(gradient_x, w, ones(x))
        assert_same(gradient_w, chosen, name)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


def test_what_functionalize_cannot_do_it_says():
    def in_place(x):
        return clampgrad.clamp_(x * 1, 0, 1, gradient="half")

    x = torch.tensor([-1.0, 0, 0.5, 1, 2])
    functional = torch.func.functionalize(in_place)
    portable = clampgrad.implementation == "portable"
    says = "derivative for aten::copy" if portable else "custom .*operator .*alias annotations"
    with pytest.raises(RuntimeError, match=says):
        grad(lambda x: functional(x).sum())(x)
    if portable:
        assert_same(functional(x), in_place(x))
    else:
        with pytest.raises(RuntimeError, match=says):
            functional(x)
    # Our rule is for our functions alone.
    with pytest.raises(RuntimeError, match="custom_function_call"):
        torch.func.functionalize(Double.apply)(x)


@pytest.mark.parametrize("convention", LINEAR)
def test_linearize(convention):
    x, t = tied(40), tied(40, seed=1)
    for name, bounds, f in functions(convention):
        y, tangent = torch.func.linearize(f, x)
        assert_same(y, x.clamp(bounds.get("min"), bounds.get("max")), name)
        assert_same(tangent(t), gradient_of_x(convention, x, t, **bounds), name)


@pytest.mark.parametrize("convention", NO_FORWARD_MODE)
@pytest.mark.parametrize("operator", OPERATORS)
def test_no_forward_mode_where_the_gradient_is_not_linear(operator, convention):
    def f(x):
        return getattr(clampgrad, operator)(x, **BOUNDS[operator], gradient=convention)

    x = torch.tensor([-1.0, 0.5, 2])
    for forward in (
        lambda: jvp(f, (x,), (ones(x),)),
        lambda: jacfwd(f)(x),
        lambda: vmap(lambda x: jvp(f, (x,), (torch.ones_like(x),)))(x),
        lambda: hessian(lambda x: f(x).sum())(x),
        lambda: jvp(lambda g: vjp(f, x)[1](g)[0], (x,), (ones(x),)),
    ):
        with pytest.raises(
            (RuntimeError, NotImplementedError), match=f"(?i){convention}.*forward|forward.*mode"
        ):
            forward()


@pytest.mark.parametrize("convention", NO_FORWARD_MODE)
def test_what_a_bound_gets_is_linear(convention):
    """So it has a derivative in forward mode where x is a constant."""
    x, g = torch.tensor([0.0, 2]), torch.tensor([3.0, 5])
    _, pull = vjp(lambda hi: clampgrad.clamp_max(x, hi, gradient=convention), torch.ones(2))
    assert [t.tolist() for t in jvp(lambda g: pull(g)[0], (g,), (g,))] == [[0, 5], [0, 5]]


def test_what_carries_a_tangent_is_being_differentiated():
    """Beside what requires grad: the two share a tie, forward and backward."""
    x = torch.zeros(2, requires_grad=True)
    with fwad.dual_level():
        y = fwad.make_dual(torch.zeros(2), torch.ones(2))
        for result in (clampgrad.maximum(x, y), clampgrad.clamp_min(x, y)):
            assert fwad.unpack_dual(result).tangent.tolist() == [0.5, 0.5]
            assert torch.autograd.grad(result.sum(), x)[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("gradient", LINEAR)
@pytest.mark.parametrize("operator", BOUNDS)
def test_the_tangent_is_a_tensor_of_its_own(operator, gradient):
    """So that writing to the result changes neither x's tangent nor the caller's."""
    x, t = torch.tensor([0.25, 0.5]), torch.ones(2)

    def f(x):
        y = getattr(clampgrad, operator)(x, **BOUNDS[operator], gradient=gradient)
        return y.mul_(5) + x

    assert jvp(f, (x,), (t,))[1].tolist() == [6, 6]
    assert t.tolist() == [1, 1]
