"""torch.func where the bounds are Tensors: batched alone or together, in chunks, promoted."""

from functools import partial
from itertools import product

import pytest
import torch
from torch.func import grad, jacrev, jvp, vjp, vmap

import clampgrad
from oracle import CONVENTIONS, EXTREMA
from testing.cases import sample_if_portable
from testing.comparing import DTYPES, assert_same, seeded

IN_DIMS = [(0, None, None), (None, 0, None), (None, None, 1), (1, 0, None), (0, 1, 0)]


def values(*shape, seed):
    """Few different values, so that many tie; their sums are exact."""
    return seeded(torch.randint, -2, 3, shape, seed=seed) / 2


def batched(in_dims, *example):
    shapes = [example if dim is None else (3, *example) for dim in in_dims]
    given = [values(*shape, seed=i) for i, shape in enumerate(shapes)]
    return [v.movedim(0, dim or 0).contiguous() for v, dim in zip(given, in_dims)]


def loop(f, in_dims, args):
    def sample(i):
        return f(*(a if d is None else a.select(d, i) for a, d in zip(args, in_dims)))

    return [torch.stack(parts) for parts in zip(*(sample(i) for i in range(3)))]


@pytest.mark.parametrize(
    "convention, in_dims, chunk",
    sample_if_portable(21, product(CONVENTIONS, IN_DIMS, [None, 1, 2])),
    ids=str,
)
def test_some_of_three_tensors_are_batched(convention, in_dims, chunk):
    clamp, args = partial(clampgrad.clamp, gradient=convention), batched(in_dims, 4)
    slopes = grad(lambda *args: (clamp(*args) * torch.arange(1.0, 5)).sum(), (0, 1, 2))
    assert_same(vmap(slopes, in_dims, chunk_size=chunk)(*args), loop(slopes, in_dims, args))
    example = [values(4, seed=seed) for seed in range(3)]
    whole, in_chunks = (
        jacrev(clamp, (0, 1, 2), chunk_size=size)(*example) for size in (None, chunk)
    )
    assert_same(in_chunks, whole)


def test_a_batch_dimension_of_more_dimensions_than_a_bound_has():
    """The batch comes first there, and the dimensions of the bound are aligned with the others."""
    x, lo = values(2, 3, 4, seed=0), values(2, 3, seed=1)
    result = vmap(lambda x: clampgrad.clamp(x, lo, 5.0), in_dims=2, out_dims=2)(x)
    assert_same(result, torch.clamp(x, lo[..., None], torch.tensor(5.0)))


@pytest.mark.parametrize("name", ["maximum", "clamp_min", "clamp_max"])
def test_the_innermost_vmap_batches_no_argument(name):
    functions = getattr(clampgrad, name), getattr(torch, name)

    def inner(f, x, c):
        return grad(lambda x: vmap(lambda t: (t * f(x, c)).sum())(torch.ones(5)).sum())(x)

    x, c = torch.randn(3, 4), torch.randn(3, 4)
    actual, expected = (vmap(lambda x, c, f=f: inner(f, x, c))(x, c) for f in functions)
    assert_same(actual, expected)


# ---- Promotion under vmap ------------------------------------------------------------------------


@pytest.mark.parametrize("convention, expected", [("with_grad", [0, 1]), ("restoring", [-1, 1])])
def test_a_number_before_a_tensor_is_rounded_to_the_dtype_of_x(convention, expected):
    """It is compared in float16, and the result has the dtype of the Tensor."""
    x, hi = torch.tensor([0.0, 0.1], dtype=torch.float16), torch.ones(2)

    def f(x, hi):
        return clampgrad.clamp(x, 0.1, hi, gradient=convention)

    assert_same(vmap(f)(x, hi), torch.clamp_max(torch.clamp_min(x, 0.1), hi))
    assert vmap(grad(f))(x, hi).tolist() == expected
    for of in ((0,), (0, 1)):
        assert grad(lambda *args: f(*args).sum(), of)(x, hi)[0].tolist() == expected


OF_TWO_TENSORS = [*EXTREMA, "clamp_min", "clamp_max"]


@pytest.mark.parametrize(
    "operator, second, first",
    sample_if_portable(24, product(OF_TWO_TENSORS, DTYPES, DTYPES)),
    ids=str,
)
def test_samples_without_dimensions_promote_as_in_a_loop(operator, second, first):
    """Inside, the batched one has a dimension. Beside samples with a dimension, they
    promote as under torch's vmap."""
    x, c = torch.tensor([0.1, 0.2, 0.3]).to(first), torch.tensor(0.2).to(second)
    rows, op = torch.randn(3, 2).to(second), getattr(clampgrad, operator)
    for args, in_dims in (((x, c), (0, None)), ((c, x), (None, 0)), ((x, rows[:, 0]), (0, 0))):
        expected = loop(lambda *args: (op(*args),), in_dims, args)[0]
        assert_same(vmap(op, in_dims)(*args), expected)
    beside = (x, rows), (rows, x), (x, rows[0]), (rows[0], x)
    for args, in_dims in zip(beside, ((0, 0), (0, 0), (0, None), (None, 0))):
        assert_same(vmap(op, in_dims)(*args), vmap(getattr(torch, operator), in_dims)(*args))
    for f in (op, getattr(clampgrad, f"{operator}_", op)):
        one = partial(lambda f, x: f(x * 1, c).float(), f)
        each = torch.stack([grad(one)(sample) for sample in x])
        for slopes in (vmap(grad(one)), grad(lambda x, one=one: vmap(one)(x).sum())):
            assert_same(slopes(x), each)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "maximum", "minimum"])
def test_the_least_norm_beside_a_constant(name):
    """A constant among the active arguments makes 0 the least norm; two that move share."""
    f = getattr(torch.ops.clampgrad, f"{name}_mingrad")
    x, y, t = torch.zeros(2), torch.zeros(2), torch.ones(2)
    for of_one in (lambda x: f(x, y), lambda y: f(x, y)):
        assert jvp(of_one, (x,), (t,))[1].tolist() == [0, 0]
        assert vjp(of_one, x)[1](t)[0].tolist() == [0, 0]
    assert jvp(f, (x, y), (t, 3 * t))[1].tolist() == [2, 2]
    for gradient in vjp(f, x, y)[1](t):
        assert gradient.tolist() == [0.5, 0.5]
