"""Tensors for bounds, maximum and its kind: who shares a tie, at every level, and nobody else.

test_table.py has every row; here are the promises that need more than one element.
"""

from itertools import combinations, product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jvp, vjp, vmap

import clampgrad
from common import DTYPES, RELEASE, assert_same, eager, tied
from oracle import EXACT, PSEUDO, TABLE, factors, pseudo_gradient, scaled

OPERATORS = TABLE["operators"]
EXTREMA = ("maximum", "minimum", "fmax", "fmin")
# torch's own gradient is one of the pins, up to 2.13 and from 2.15 on; 2.14 is neither in fmax.
PIN = "inclusive" if RELEASE <= (2, 13) else "joint" if RELEASE >= (2, 15) else None


def call(operator, convention):
    return lambda *args: getattr(clampgrad, operator)(*args, gradient=convention)


def operands(operator, *shapes, dtype=torch.float32, nan=True):
    count = len(OPERATORS[operator]["arguments"])
    return [tied(*shape, dtype=dtype, seed=i, nan=nan) for i, shape in enumerate(shapes[:count])]


SHAPES = {
    "equal": [(6, 5), (6, 5), (6, 5)],
    "rows": [(6, 5), (5,), (1, 5)],
    "columns": [(6, 5), (6, 1), (6, 1)],
    "one number": [(6, 5), (), (1, 1)],
    "input broadcast": [(5,), (6, 5), (6, 1)],
    "all broadcast": [(6, 1, 1), (5, 1), (3,)],
    "empty": [(0, 5), (5,), (1, 5)],
}


# ---- The forward, and the releases that the pins are named after ---------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_forward(operator, shapes, dtype):
    args = operands(operator, *SHAPES[shapes], dtype=dtype)
    expected = getattr(torch, operator)(*args)
    for convention in EXACT + (PSEUDO if operator not in EXTREMA else ()):
        leaves = [a.clone().requires_grad_() for a in args]
        actual = call(operator, convention)(*leaves)
        assert_same(actual.detach(), expected, convention)
        assert actual.stride() == expected.stride()
        assert_same(call(operator, convention)(*args), expected, convention)


@pytest.mark.parametrize("operator", OPERATORS)
def test_promotion(operator):
    """The wider dtype wins; each gradient arrives in the dtype of its argument."""
    for dtypes in product([torch.float16, torch.float32, torch.float64], repeat=3):
        args = [a.to(d) for a, d in zip(operands(operator, *SHAPES["rows"]), dtypes)]
        expected = getattr(torch, operator)(*args)
        leaves = [a.clone().requires_grad_() for a in args]
        y = call(operator, "min_norm")(*leaves)
        assert_same(y.detach(), expected)
        gradients = torch.autograd.grad(y, leaves, torch.ones_like(y))
        assert [v.dtype for v in gradients] == [a.dtype for a in args]


@pytest.mark.skipif(PIN is None, reason="no pin is of this release")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_pin_of_this_release_is_this_release(operator, shapes, dtype):
    args = operands(operator, *SHAPES[shapes], dtype=dtype)
    shape = torch.broadcast_shapes(*(a.shape for a in args))
    g = tied(*shape, dtype=dtype, seed=9, nan=False).clamp(-2, 2)

    def expanded(*args):  # 2.13 cannot do its backward of clamp where all three are broadcast
        return getattr(torch, operator)(*(a.expand(shape) for a in args))

    theirs = eager(expanded, args, g)
    ours = eager(call(operator, PIN), args, g)
    for ours_, theirs_ in zip(ours, theirs):
        torch.testing.assert_close(ours_, theirs_, equal_nan=True)


# ---- Broadcasting: a gradient is summed back over the dimensions that were made up ---------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_broadcast(operator, shapes, convention):
    args = operands(operator, *SHAPES[shapes], dtype=torch.float64)
    shape = torch.broadcast_shapes(*(a.shape for a in args))
    g = torch.randint(1, 9, shape).double()
    names = OPERATORS[operator]["arguments"]
    for chosen in [c for n in range(1, len(names) + 1) for c in combinations(range(len(names)), n)]:
        leaves = [a.clone().requires_grad_(i in chosen) for i, a in enumerate(args)]
        y = call(operator, convention)(*leaves)
        shares = factors(
            operator,
            "tensors",
            convention,
            [a.expand(shape) for a in args],
            [names[i] for i in chosen],
        )
        gradients = torch.autograd.grad(y, [leaves[i] for i in chosen], g)
        for i, gradient in zip(chosen, gradients):
            expected = scaled(g, shares[i]).sum_to_size(args[i].shape)
            torch.testing.assert_close(gradient, expected)


# ---- What is being differentiated, level by level ------------------------------------------------

POINTS = {
    operator: torch.tensor([p for row in OPERATORS[operator]["rows"] for p in row["points"]]).T
    for operator in OPERATORS
}


def with_constants(operator, convention, args, chosen):
    """The operator as a function of the chosen arguments alone; the others may be passed too."""

    def f(variables, constants):
        values, kept = iter(variables), iter(constants)
        every = [next(values) if i in chosen else next(kept) for i in range(len(args))]
        return call(operator, convention)(*every)

    variables = tuple(a for i, a in enumerate(args) if i in chosen)
    return f, variables, tuple(a for i, a in enumerate(args) if i not in chosen)


def subsets(operator):
    names = OPERATORS[operator]["arguments"]
    for size in range(1, len(names) + 1):
        for chosen in combinations(range(len(names)), size):
            yield chosen, [names[i] for i in chosen]


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", OPERATORS)
def test_vmap_does_not_hide_what_is_differentiated(operator, convention):
    """grad and jvp of one element inside of vmap, with constants that are batched as well."""
    args = list(POINTS[operator])
    for chosen, names in subsets(operator):
        f, variables, constants = with_constants(operator, convention, args, chosen)
        shares = factors(operator, "tensors", convention, args, names)[list(chosen)]
        inside = vmap(lambda v, c: grad(lambda v: f(v, c))(v))(variables, constants)
        for gradient, share in zip(inside, shares):
            torch.testing.assert_close(gradient, share.float())
        outside = vjp(lambda *v: vmap(f)(v, constants), *variables)[1](torch.ones_like(args[0]))
        for gradient, share in zip(outside, shares):
            torch.testing.assert_close(gradient, share.float())
        ones = tuple(torch.ones_like(v) for v in variables)
        tangent = vmap(lambda v, c, t: jvp(lambda *v: f(v, c), v, t)[1])(variables, constants, ones)
        torch.testing.assert_close(tangent, shares.sum(0).float())
        tangent = jvp(lambda *v: vmap(f)(v, constants), variables, ones)[1]
        torch.testing.assert_close(tangent, shares.sum(0).float())


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", EXTREMA)
def test_a_constant_of_one_level_is_a_variable_of_another(operator, convention):
    x, y = POINTS[operator]
    f = call(operator, convention)
    for_x = factors(operator, "tensors", convention, (x, y), ["x"])[0].float()
    for_y = factors(operator, "tensors", convention, (x, y), ["y"])[1].float()

    # x inside, y outside: the value that vjp returns still depends on y.
    outer = grad(lambda y: vjp(lambda x: f(x, y), x)[0].sum())(y)
    torch.testing.assert_close(outer, for_y)
    (inner,) = vjp(lambda x: f(x, y), x)[1](torch.ones_like(x))
    torch.testing.assert_close(inner, for_x)

    # A parameter that is closed over.
    parameter = torch.nn.Parameter(y.clone())
    value, pull = vjp(lambda x: f(x, parameter), x)
    torch.testing.assert_close(pull(torch.ones_like(x))[0].detach(), for_x)
    (gradient,) = torch.autograd.grad(value, parameter, torch.ones_like(y))
    torch.testing.assert_close(gradient, for_y)

    # Forward mode inside, reverse mode outside.
    outer = grad(lambda y: jvp(lambda x: f(x, y), (x,), (torch.ones_like(x),))[0].sum())(y)
    torch.testing.assert_close(outer, for_y)


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", OPERATORS)
def test_compiled(operator, convention):
    args = list(POINTS[operator])
    for chosen, names in subsets(operator):
        torch._dynamo.reset()
        f = torch.compile(call(operator, convention), backend="aot_eager", fullgraph=True)
        leaves = [a.clone().requires_grad_(i in chosen) for i, a in enumerate(args)]
        y = f(*leaves)
        shares = factors(operator, "tensors", convention, args, names)
        gradients = torch.autograd.grad(y, [leaves[i] for i in chosen], torch.ones_like(y))
        for i, gradient in zip(chosen, gradients):
            torch.testing.assert_close(gradient, shares[i].float())


# ---- The same value on both sides, and what depends on it ----------------------------------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", EXTREMA)
def test_of_one_tensor_with_itself(operator, convention):
    """max(x, x) is x: a derivative of 1, however the tie is shared."""
    x = torch.tensor([-2.0, 0.0, 3.0])
    (gradient,) = eager(lambda x: call(operator, convention)(x, x), [x], torch.ones(3))
    assert gradient.tolist() == [1, 1, 1]
    if convention == "min_norm":
        f = call(operator, convention)
        (gradient,) = eager(lambda x: f(x, x.detach()), [x], torch.ones(3))
        assert gradient.tolist() == [0, 0, 0]


@pytest.mark.parametrize("convention", EXACT)
def test_the_first_ppo_update(convention):
    """The ratio is 1 everywhere and both surrogates are equal: the plain policy gradient."""
    logits = torch.randn(20, dtype=torch.float64, requires_grad=True)
    advantage = torch.randn(20, dtype=torch.float64)
    ratio = (logits - logits.detach()).exp()
    clipped = clampgrad.clamp(ratio, 0.8, 1.2, gradient=convention)
    loss = -call("minimum", convention)(ratio * advantage, clipped * advantage).mean()
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, -advantage / 20)


# ---- Derivatives away from ties ------------------------------------------------------------------


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradcheck(operator, convention):
    """Broadcast arguments, none closer to another than 0.05."""
    x = torch.linspace(-2.3, 2.1, 12, dtype=torch.float64).reshape(3, 4)
    others = [
        torch.tensor([-1.05, -0.65, -1.55, 0.25], dtype=torch.float64),
        torch.tensor([[0.75], [1.15], [-0.15]], dtype=torch.float64),
    ]
    args = [x, *others][: len(OPERATORS[operator]["arguments"])]
    args = [a.clone().requires_grad_() for a in args]
    f = call(operator, convention)
    assert gradcheck(
        f, args, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert gradgradcheck(
        lambda *a: f(*a).sin(), args, check_fwd_over_rev=True, check_batched_grad=True
    )


# ---- One number and one tensor -------------------------------------------------------------------

MIXED = [  # x, lo, hi
    (x, lo, hi) for lo, hi in ((0, 1), (1, 1), (1, 0)) for x in (-1.0, 0.0, 0.5, 1.0, 2.0)
]


def mixed(convention, tensor, x, lo, hi, g, maximize=False):
    """The gradients of x and of the one bound that is a tensor."""

    def f(x, bound):
        bounds = {"min": lo, "max": hi} | {tensor: bound}
        return clampgrad.clamp(x, **bounds, gradient=convention, maximize=maximize)

    bound = torch.tensor([float({"min": lo, "max": hi}[tensor])])
    return eager(f, [torch.tensor([x]), bound], torch.tensor([g]))


@pytest.mark.parametrize("tensor", ["min", "max"])
def test_a_number_beside_a_tensor_is_a_constant(tensor):
    bound = {"min": "lo", "max": "hi"}[tensor]
    for point in MIXED:
        gradients = mixed("min_norm", tensor, *point, 1.0)
        args = [torch.tensor([float(v)]) for v in point]
        shares = dict(
            zip(("x", "lo", "hi"), factors("clamp", "tensors", "min_norm", args, ["x", bound]))
        )
        assert [v.item() for v in gradients] == [shares["x"].item(), shares[bound].item()], point


@pytest.mark.parametrize("tensor", ["min", "max"])
@pytest.mark.parametrize("convention", ["inclusive", "joint", "half"])
def test_a_number_and_a_tensor_one_after_the_other(convention, tensor):
    """clamp_max(clamp_min(x, lo), hi), each with the row of its own kind."""
    kind = {"min": "numbers", "max": "numbers"} | {tensor: "tensors"}
    for point in MIXED:
        x, lo, hi = (torch.tensor([float(v)]) for v in point)
        lower = factors("clamp_min", kind["min"], convention, (x, lo))
        upper = factors("clamp_max", kind["max"], convention, (x.maximum(lo), hi))
        expected = [lower[0] * upper[0], lower[1] * upper[0] if tensor == "min" else upper[1]]
        gradients = mixed(convention, tensor, *point, 1.0)
        assert [v.item() for v in gradients] == [v.item() for v in expected], point


@pytest.mark.parametrize("tensor", ["min", "max"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("convention", ["with_grad", "restoring"])
def test_a_pseudo_gradient_reads_the_position_off_the_result(convention, maximize, tensor):
    """Whatever the bounds are made of, and where lo > hi too."""
    for point, g in product(MIXED, (-2.0, 2.0)):
        x, lo, hi = (torch.tensor([float(v)]) for v in point)
        y = x.clamp(lo, hi)
        expected = pseudo_gradient(convention, maximize, x, y, torch.tensor([g]))
        gradient = mixed(convention, tensor, *point, g, maximize)[0]
        assert gradient.item() == expected.item(), (point, g)


# ---- What makes no sense -------------------------------------------------------------------------


@pytest.mark.parametrize("convention", PSEUDO)
@pytest.mark.parametrize("operator", EXTREMA)
def test_no_pseudo_gradient_of_two_equals(operator, convention):
    for recorded in (False, True):
        x = torch.ones(2, requires_grad=recorded)
        with pytest.raises(ValueError, match=convention):
            call(operator, convention)(x, x)


def test_wrong_tensors_are_the_errors_of_torch():
    x = torch.ones(3)
    bad = {
        "shapes": (x, torch.ones(2)),
        "complex": (x, torch.ones(3) * 1j),
        "devices": (x, torch.ones(3, device="meta")),
    }
    for operator, args in product(("clamp_min", "clamp_max", *EXTREMA), bad.values()):
        with pytest.raises(Exception) as theirs:
            getattr(torch, operator)(*args)
        for first in (args[0], args[0].clone().requires_grad_()):
            with pytest.raises(theirs.type):
                getattr(clampgrad, operator)(first, *args[1:])


@pytest.mark.parametrize("operator", ["clamp_", "clamp_min_", "clamp_max_"])
def test_in_place_does_not_grow_or_cast(operator):
    for x, bound in (
        (torch.ones(3), torch.ones(2, 3)),
        (torch.ones(3, dtype=torch.int64), torch.ones(3)),
    ):
        for b in (bound, bound.clone().requires_grad_()):
            before = x.clone()
            with pytest.raises(RuntimeError):
                getattr(torch, operator)(x.clone(), bound)
            with pytest.raises(RuntimeError):
                getattr(clampgrad, operator)(x, b)
            assert torch.equal(x, before)


def test_mixed_bounds_in_place_are_cast_once():
    """After both, as torch does with two Tensors."""
    x, lo, hi = (
        torch.tensor([1, 2], dtype=torch.uint8),
        torch.tensor([1, 1]),
        torch.tensor([-1, -1]),
    )
    expected = torch.clamp_(x.clone(), lo, hi)
    assert_same(clampgrad.clamp_(x.clone(), lo, -1), expected)
    assert_same(clampgrad.clamp_(x.clone(), 1, hi), expected)
