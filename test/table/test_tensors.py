"""Tensors for bounds: one beside a number, one of a wider dtype, one without memory."""

from functools import partial
from itertools import product

import pytest
import torch

import clampgrad
from oracle import CONVENTIONS, EXACT, EXTREMA, TWO_STEP
from testing.cases import sample_if_portable
from testing.comparing import DTYPES, assert_same, check_rows, result_or_error
from testing.matrix.reference import forward

OF_BOTH = (*DTYPES, torch.uint8, torch.int8, torch.int64)
NUMBERS = (0.1, -1, 1000, torch.nan)


def leaf(tensor, recorded):
    return tensor.clone().requires_grad_(recorded and tensor.is_floating_point())


@pytest.mark.parametrize(
    "convention, recorded", sample_if_portable(4, product(CONVENTIONS, [False, True]))
)
def test_mixed_bounds_have_the_value_and_dtype_of_the_chain(convention, recorded):
    clamp = partial(clampgrad.clamp, gradient=convention)
    values = torch.tensor([0.0, 1, 2, 100])
    tensors = (values.flip(0), torch.tensor(1.5))
    for of_x, of_bound, number, tensor in product(OF_BOTH, OF_BOTH, NUMBERS, tensors):
        x, bound = leaf(values.to(of_x), recorded), leaf(tensor.to(of_bound), recorded)
        for bounds in ((bound, number), (number, bound)):
            expected, got = (
                result_or_error(forward, "clamp", (x, *bounds)),
                result_or_error(clamp, x, *bounds),
            )
            where = of_x, of_bound, bounds
            if isinstance(expected, tuple):
                assert got == expected, where
            else:
                assert_same(got.detach(), expected.detach(), where)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_mixed_bounds_in_place_and_out(convention):
    x, lo = torch.tensor([0.0, 1.0], dtype=torch.float16), torch.tensor([-1.0, 0.5])
    expected, out = clampgrad.clamp(x, lo, 0.1, gradient=convention), torch.empty(0)
    assert clampgrad.clamp(x, lo, 0.1, gradient=convention, out=out) is out
    assert_same(out, expected)
    assert clampgrad.clamp_(x, lo, 0.1, gradient=convention) is x
    assert_same(x, expected.half())
    with pytest.raises(RuntimeError, match="can't be cast"):
        clampgrad.clamp_(torch.tensor([1, 2]), lo, 1, gradient=convention)
    with pytest.raises(RuntimeError, match="can't be cast"):
        clampgrad.clamp_(torch.tensor([1, 2]), lo.requires_grad_(), gradient=convention)


def test_mixed_bounds_in_place_are_cast_once():
    """After both clamps, as torch does with two Tensors."""
    x, lo, hi = torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([1, 1]), -torch.ones(2).long()
    expected = torch.clamp_(x.clone(), lo, hi)
    assert_same(clampgrad.clamp_(x.clone(), lo, -1), expected)
    assert_same(clampgrad.clamp_(x.clone(), 1, hi), expected)


WIDER = [
    (torch.float16, 0.0, torch.float32, 1e-8, "clamp_min"),
    (torch.float16, 65504.0, torch.float32, 65510.0, "clamp_min"),
    (torch.bfloat16, 1.0, torch.float64, 1 + 1e-9, "clamp_min"),
    (torch.float32, 1.0, torch.float64, 1 - 1e-12, "clamp_max"),
]


def beside_a_number(y, b, name, gradient):
    bounds = (b, torch.inf) if name == "clamp_min" else (-torch.inf, b)
    clampgrad.clamp_(y[:], *bounds, gradient=gradient)


IN_PLACE = {
    "tensor": lambda y, b, name, gradient: getattr(clampgrad, f"{name}_")(y, b, gradient=gradient),
    "view": lambda y, *rest: IN_PLACE["tensor"](y[:], *rest),
    "beside a number": beside_a_number,
}


def written(how, x, *rest):
    y = x * 1
    IN_PLACE[how](y, *rest)
    return y


@pytest.mark.parametrize("how", IN_PLACE)
@pytest.mark.parametrize("dtype, value, wider, bound, name", WIDER)
@pytest.mark.parametrize("gradient", EXACT)
def test_a_bound_of_a_wider_dtype_is_compared_in_it_in_place_too(
    dtype, value, wider, bound, name, gradient, how
):
    x = torch.tensor([value], dtype=dtype, requires_grad=True)
    b = torch.tensor([bound], dtype=wider, requires_grad=True)
    expected = getattr(clampgrad, name)(x, b, gradient=gradient)
    if (how, name) == ("beside a number", "clamp_min") and gradient in TWO_STEP:
        pytest.skip("refused: test_in_place.py")
    result = written(how, x, b, name, gradient)
    assert_same(result.detach(), expected.detach().to(dtype))
    gradients = torch.autograd.grad(result.sum(), (x, b))
    assert_same(gradients, torch.autograd.grad(expected.sum(), (x, b)))


def test_the_same_compiled(backend):
    given = [
        torch.tensor([v], dtype=t) for d, x, wider, b, _ in WIDER for v, t in ((x, d), (b, wider))
    ]

    def f(*given):
        return torch.stack(
            [
                written(how, x, b, name, gradient).double()
                for x, b, (*_, name) in zip(given[::2], given[1::2], WIDER)
                for how in ("tensor", "view")
                for gradient in EXACT
            ]
        )

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    check_rows(compiled, f, given, torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize("name", EXTREMA)
def test_out_of_two_tensors(name):
    a, b, out = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0]), torch.empty(0)
    assert getattr(clampgrad, name)(a, b, out=out) is out
    assert_same(out, getattr(torch, name)(a, b))


@pytest.mark.of_kernels("compositions save the bounds, as torch does")
@pytest.mark.parametrize("convention", EXACT)
def test_bounds_that_were_made_in_inference_mode(convention):
    """torch's own clamp would save them for backward, which it cannot (docs/support.md)."""
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    with torch.inference_mode():
        lo, hi = torch.zeros(3), torch.ones(3)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        torch.clamp(x, lo, hi)
    y = clampgrad.clamp(x, lo, hi, gradient=convention)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("differentiated", [0, 1])
@pytest.mark.parametrize("number_first", [True, False])
def test_mixed_out_of_what_is_differentiated(dtype, differentiated, number_first):
    x, bound = tensors = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    tensors[differentiated].requires_grad_()
    bounds = (-1, bound) if number_first else (bound, 2)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        clampgrad.clamp(x, *bounds, out=torch.empty(3, dtype=dtype))
