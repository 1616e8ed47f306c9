"""Whatever the shapes, strides, dtypes and inputs that require grad: torch's forward, our table."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from torch.func import vjp

import clampgrad
from common import DTYPES, INTEGERS, assert_same
from oracle import EXACT, PSEUDO, TABLE, factors, pseudo_gradient, scaled

pytestmark = pytest.mark.thorough

ARGUMENTS = {name: operator["arguments"] for name, operator in TABLE["operators"].items()}
CALLS = [
    (operator, {"gradient": convention} | maximize)
    for operator in ARGUMENTS
    for convention in (
        EXACT + PSEUDO if operator in TABLE["pseudo_gradients"]["operators"] else EXACT
    )
    for maximize in ([{}, {"maximize": True}] if convention in ("with_grad", "restoring") else [{}])
]
# 0.1 is a different number in each dtype; ties come after the conversion to the result's.
VALUES = torch.tensor(
    [0, 1, 1, 2, 0.1, 0.1, -0.0, 0.5, torch.inf, -torch.inf, torch.nan], dtype=torch.float64
)


def transposed(make, shape):
    return make(shape[::-1]).permute(list(reversed(range(len(shape)))))


def sliced(make, shape):
    return make((*shape[:-1], 2 * shape[-1] + 1))[..., 1::2] if shape else make((3,))[1]


def expanded(make, shape):
    return make((1,) + shape[1:]).expand(shape) if shape else make(shape)


def channels_last(make, shape):
    x = make(shape)
    return x.to(memory_format=torch.channels_last) if len(shape) == 4 else x


LAYOUTS = [lambda make, shape: make(shape), transposed, sliced, expanded, channels_last]


@st.composite
def tensors(draw, shape):
    dtype = draw(st.sampled_from(DTYPES + INTEGERS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    values = VALUES.to(dtype) if dtype.is_floating_point else torch.arange(3).to(dtype)

    def make(shape):
        return values[torch.randint(len(values), shape, generator=generator, device="cpu")]

    x = draw(st.sampled_from(LAYOUTS))(make, shape)
    return x.requires_grad_(dtype.is_floating_point and draw(st.booleans()))


@st.composite
def calls(draw):
    operator, keywords = draw(st.sampled_from(CALLS))
    count = len(ARGUMENTS[operator])
    shapes = draw(mutually_broadcastable_shapes(num_shapes=count, max_dims=4, max_side=4))
    return operator, keywords, [draw(tensors(shape)) for shape in shapes.input_shapes]


def strides(x):
    """Those that matter: no other element is reached by that of a dimension of size 1."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1]


def shares(operator, gradient, args, y, g, maximize=False):
    """What each argument gets at each element of the result, by the table; in float64."""
    g, names = g.double(), ARGUMENTS[operator]
    differentiated = [name for name, a in zip(names, args) if a.requires_grad]
    # The forward converts its arguments to the dtype of the result; then they are compared.
    args = [a.detach().to(y.dtype).expand(y.shape) for a in args]
    if gradient in EXACT:
        return [scaled(g, f) for f in factors(operator, "tensors", gradient, args, differentiated)]
    bounds = factors(operator, "tensors", "min_norm", args, differentiated)[1:]
    of_x = pseudo_gradient(gradient, maximize, args[0], y, g)
    return [of_x, *(torch.where(args[0] == y, 0, scaled(g, f)) for f in bounds)]


def assert_sum(actual, share, arg, dtype):
    """The share, summed to the shape of its argument; the sum is rounded in either dtype."""
    assert (actual.dtype, actual.shape) == (arg.dtype, arg.shape)
    rounding = max(torch.finfo(dtype).eps, torch.finfo(arg.dtype).eps)
    error = (actual.double() - share.sum_to_size(arg.shape)).abs()
    assert (error <= 2 * rounding * share.abs().sum_to_size(arg.shape)).all()


@settings(max_examples=400, deadline=None, derandomize=True)
@given(calls())
def test_any_call(call):
    operator, keywords, args = call

    def f(*args):
        return getattr(clampgrad, operator)(*args, **keywords)

    y = f(*args)
    expected = getattr(torch, operator)(*(a.detach() for a in args))
    assert_same(y.detach(), expected)
    assert strides(y) == strides(expected)

    chosen = [i for i, a in enumerate(args) if a.requires_grad]
    assert y.requires_grad == bool(chosen)
    if not chosen:
        return
    g = torch.randint(-2, 3, y.shape).to(y.dtype)
    gradients = torch.autograd.grad(y, [args[i] for i in chosen], g, retain_graph=True)
    expected = shares(operator, args=args, y=expected, g=g, **keywords)
    for gradient, i in zip(gradients, chosen):
        assert_sum(gradient, expected[i], args[i], y.dtype)

    def of_chosen(*leaves):
        rest = dict(zip(chosen, leaves))
        return f(*(rest.get(i, a.detach()) for i, a in enumerate(args)))

    value, pull = vjp(of_chosen, *(args[i].detach() for i in chosen))
    assert_same(value, y.detach())
    for transformed, gradient in zip(pull(g), gradients):
        assert_same(transformed, gradient)
