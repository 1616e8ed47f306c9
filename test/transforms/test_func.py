"""torch.func beyond the nests of testing/matrix: no loop over samples, the gradient differentiated,
tangents. test_func_tensors.py has Tensor bounds."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.func import grad, jvp, vmap

import clampgrad
from oracle import CONVENTIONS, gradient_of_x
from testing.comparing import BOUNDS, assert_same, random_with_ties
from testing.matrix.inputs import inputs
from testing.matrix.reference import ARGUMENTS
from testing.matrix.run import calls, check_all

LINEAR = [c for c in CONVENTIONS if c not in ("with_grad", "restoring")]


@pytest.fixture(autouse=True)
def no_loop_over_samples():
    """Without a batching rule vmap warns and loops over the samples: an error here."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def test_the_loop_would_be_noticed():
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda x: torch.ops.aten.nonzero_static(x, size=1))(torch.eye(3))


# testing/matrix draws of these contexts; here the calls run whole, and no
# rule for vmap may be missing.
CONTEXTS = ("vmap vjp", "vjp vmap", "vmap vmap", "vmap jvp")
TWICE = ("vjp of vjp", "jvp of vjp", "vjp of vmap of vjp", "is_grads_batched, differentiated")


@pytest.mark.parametrize("context", [*CONTEXTS, *TWICE])
@pytest.mark.parametrize("operator", ARGUMENTS)
def test_in_levels(operator, context):
    kinds = inputs(operator)
    args = [kinds[kind] for kind in ("number: number", "Tensors") if kind in kinds]
    for call in calls():
        if call.operator == operator and call.args in args:
            forms = ("function", "in place", "mingrad", "mingrad in place")
            check_all(replace(call, form=form, context=context) for form in forms)


@pytest.mark.compiled("an operator of its own there alone")
def test_in_place_keeps_its_dtype():
    """Where functionalize runs an operator that is not in place."""
    op = torch.ops.clampgrad.clamp_min_mingrad_
    functionalized = torch.func.functionalize(lambda x: op(x + 0, torch.ones(3)))
    for call in (functionalized, lambda x: clampgrad.clamp_(x, 0, torch.ones(3))):
        with pytest.raises(RuntimeError, match="cast"):
            call(torch.arange(3))
    outside = torch.ones(3)
    with pytest.raises(RuntimeError, match="must be given the tensor that is written"):
        torch.func.functionalize(lambda x: op(outside, x))(torch.ones(3))


@pytest.mark.compiled("an operator of its own there alone")
def test_a_tensor_of_vmap_outside_of_it():
    kept = []
    vmap(lambda x: kept.append(x) or x)(torch.ones(3))
    with pytest.raises(RuntimeError, match="vmap was used outside of it"):
        torch.ops.clampgrad.clamp_mingrad(kept[0], 0, 1)


@pytest.mark.compiled("torch.func.functionalize has no rule for an autograd function")
@pytest.mark.parametrize(
    "bounds", [(0, 1), (torch.zeros(5).double(), torch.ones(5)), (0, torch.ones(5))]
)
def test_functionalize(bounds):
    """In place, inside and outside of a derivative."""

    def in_place(x):
        y = x * 1
        clampgrad.clamp_(y[:], *bounds, gradient="half")
        return y

    x = torch.tensor([-1.0, 0, 0.5, 1, 2])
    functional = torch.func.functionalize(in_place)
    assert_same(functional(x), in_place(x))
    inside = torch.func.functionalize(grad(lambda x: in_place(x).sum()))
    for slope in (inside, grad(lambda x: functional(x).sum())):
        assert slope(x).tolist() == [0, 0.5, 1, 0.5, 0]


@pytest.mark.parametrize(
    "gradient, slopes", [("min_norm", [0, 0, 1, 0, 0]), ("inclusive", [0, 1, 1, 1, 0])]
)
def test_functionalize_between_numbers(gradient, slopes):
    functionalize = torch.func.functionalize

    def clamped(x):
        return clampgrad.clamp(x * 1, 0, 1, gradient=gradient)

    for slope in (
        grad(lambda x: functionalize(clamped)(x).sum()),
        functionalize(grad(lambda x: clamped(x).sum())),
    ):
        assert slope(torch.tensor([-1.0, 0, 0.5, 1, 2])).tolist() == slopes


@pytest.mark.parametrize("operator", BOUNDS)
def test_samples_along_the_last_dimension(operator):
    x, bounds = random_with_ties(5, 8), BOUNDS[operator]
    expected = gradient_of_x("min_norm", x, torch.ones_like(x), **bounds)
    for function in (getattr(clampgrad, operator), getattr(torch.ops.clampgrad, operator + "_")):
        # A copy leaves the dimension of the samples where it is.
        slopes = grad(lambda x: function(x.clone(), **bounds).sum())  # noqa: B023
        assert_same(vmap(slopes, 1, 1)(x), expected)


def test_what_carries_a_tangent_is_being_differentiated():
    """It shares a tie with an input that requires grad, in forward and backward."""
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


def slope_of(f):
    return lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]


@pytest.mark.parametrize("in_place", ["", "_"])
@pytest.mark.parametrize("gradient", LINEAR)
@pytest.mark.parametrize("operator", BOUNDS)
def test_forward_mode_of_forward_mode(operator, gradient, in_place):
    """Three levels: each differentiates the tangents of those inside of it, along which an element
    stays where it is. torch runs `jvp` of an autograd function with forward mode off."""
    x, bounds = torch.tensor([-2.0, 0.0, 0.5, 1.0, 2.0]), BOUNDS[operator]
    expected = gradient_of_x(gradient, x**3, 6 * torch.ones_like(x), **bounds)
    for package, keywords, pin in (
        (clampgrad, {"gradient": gradient}, None),
        (torch, {}, gradient),
    ):

        def f(x):
            with clampgrad.pin(pin):  # noqa: B023
                return getattr(package, operator + in_place)(x**3, **bounds, **keywords)  # noqa: B023

        for _ in range(3):
            f = slope_of(f)
        assert_same(f(x), expected)


@pytest.mark.parametrize("gradient", LINEAR)
def test_what_is_written_under_no_grad_keeps_its_history_at_every_level(gradient):
    """Also that of its tangents, which another level of forward mode differentiates."""
    for package, keywords, pin in (
        (clampgrad, {"gradient": gradient}, None),
        (torch, {}, gradient),
    ):

        def cubed(x):
            y = x * x
            with torch.no_grad(), clampgrad.pin(pin):  # noqa: B023
                package.clamp_(y, 0, 10, **keywords)  # noqa: B023
            return y * x

        assert grad(slope_of(slope_of(cubed)))(torch.tensor(2.0)) == 6
        assert slope_of(slope_of(grad(cubed)))(torch.tensor(2.0)) == 6


@pytest.mark.parametrize(
    "package", [clampgrad, torch.ops.clampgrad, torch], ids=["function", "operator", "pin"]
)
@pytest.mark.parametrize("between", ["nothing", "vmap", "a level that has made it"])
def test_what_a_level_has_captured_is_not_written_there(package, between):
    """The level would not see it, and its gradient would be wrong."""
    keywords = {} if package is torch else {"gradient": "half"}
    x, number = torch.tensor([-1.0, 0.0, 2.0]), 0 if between == "vmap" else None

    def writes(c, t):
        package.clamp_(c, t if number is None else number, None, **keywords)
        return c * t

    def body(x):
        c = x * 1
        if between == "vmap":
            return grad(
                lambda t: vmap(lambda s: writes(c, s), out_dims=1)(torch.stack([t, t])).sum()
            )(x)
        return slope_of(lambda t: writes(c, t))(x)

    with clampgrad.pin("half"), pytest.raises(RuntimeError, match="captured"):
        if between == "nothing":
            grad(lambda t: writes(x, t).sum())(x + 1)
        else:
            grad(lambda x: body(x).sum())(x)
    assert x.tolist() == [-1, 0, 2]
    # What the level has made it may write, and so may a level that does not differentiate.
    assert grad(lambda t: writes(t * 1, t).sum())(x).shape == x.shape
    assert vmap(lambda t: clampgrad.clamp_(t.clone(), 0))(x).tolist() == [0, 0, 2]


VIEWS = {
    "slice": lambda c: c[1:],
    "view": lambda c: c.view(1, -1),
    "detach": torch.detach,
    "of one number": lambda c: c[0],
    "of vmap": lambda c: vmap(lambda e: e[1:])(c.view(1, -1)),
}


@pytest.mark.parametrize(
    "level", [grad, lambda f: lambda x: jvp(f, (x,), (x,))], ids=["grad", "jvp"]
)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("pin", [None, "half"])
def test_a_view_of_what_a_level_has_captured_is_not_written(pin, view, level):
    c, x = torch.tensor([-1.0, 0.5, 2.0]), torch.tensor(1.0)
    write = torch.clamp_ if pin else partial(clampgrad.clamp_, gradient="half")

    def written(c, bound):
        write(VIEWS[view](c), bound.reshape(()))
        return c.sum()

    with clampgrad.pin(pin):
        with pytest.raises(RuntimeError, match="captured"):
            level(lambda bound: written(c, bound))(x)
        assert c.tolist() == [-1, 0.5, 2]
        level(lambda bound: written(c * bound, bound))(x)  # what it has made


@pytest.mark.parametrize("bounds", [(0, 1), (torch.zeros(3), None), (torch.zeros(3), 1.0)], ids=str)
@pytest.mark.parametrize("pin", [None, "inclusive"])
def test_linearize_of_a_clamp_in_place(pin, bounds):
    """It folds what does not depend on the tangent, and runs that first."""
    function = torch.clamp_ if pin else partial(clampgrad.clamp_, gradient="inclusive")
    if pin and len({type(b) for b in bounds if b is not None}) > 1:
        pytest.skip("torch has no clamp by a number and a Tensor")

    def f(x):
        y = function((x * torch.tensor([1.0, 2.0, 3.0])).clone(), *bounds)
        return y * y * x

    x, t = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([1.0, 2.0, 3.0])
    with clampgrad.pin(pin):
        y, pushed = torch.func.linearize(f, x)
        assert_same(y, f(x))
        assert_same(pushed(t), jvp(f, (x,), (t,))[1])


def test_no_level_records_without_grad_mode():
    """As with torch's own operators, an inner `no_grad` holds at the outer levels too."""

    def constant(clamp):
        def f(x):
            with torch.no_grad():
                c = clamp(x)
            return (c * x).sum()

        return grad(lambda x: grad(f)(x).sum())(torch.tensor([0.5, 2.0]))

    for gradient in CONVENTIONS:
        assert constant(lambda x: clampgrad.clamp(x, 0, 1, gradient=gradient)).tolist() == [0, 0]  # noqa: B023
    assert constant(lambda x: clampgrad.maximum(x, torch.zeros(2))).tolist() == [0, 0]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_tangent_under_no_grad_is_a_constant_to_the_outer_level(in_place):
    """The tangent is recorded, and what grad differentiates is not."""

    def outer(clamp, which):
        def f(x):
            with torch.no_grad():
                c = clamp(x * 1 if in_place else x)
            return c * x

        slope = grad(lambda x: torch.func.jvp(f, (x,), (torch.ones(()),))[which])
        return slope(torch.tensor(0.3)).item()

    functions = (clampgrad.clamp_, torch.clamp_) if in_place else (clampgrad.clamp, torch.clamp)
    for which in (0, 1):
        actual, expected = (outer(lambda x, f=f: f(x, 0, 1), which) for f in functions)
        assert actual == expected
