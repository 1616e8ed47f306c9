"""The forward is torch's own: values to the bit, dtype, strides, out= and in-place
rules; so are gradients' strides."""

import platform
from functools import partial
from itertools import product

import pytest
import torch
import torch.autograd.forward_ad as fwad

import clampgrad
from oracle import CLAMPS, CONVENTIONS
from testing.cases import sample_if_portable
from testing.comparing import DTYPES, INTEGERS, assert_same, random_with_ties

NAN = torch.nan
BOUNDS = {
    "clamp": [(0, 1), (-0.0, 0.0), (None, 0.5), (0.5, None), (1, 0), (NAN, 1), (0, NAN)],
    "clamp_min": [(0,), (0.1,), (-torch.inf,), (NAN,)],
    "clamp_max": [(1,), (0.1,), (torch.inf,), (NAN,)],
}

ODD_STRIDES = {  # of dimensions of size 1
    (1, 5, 1): (9, 3, 7),
    (4, 1, 6): (1, 17, 4),
    (3, 1, 6): (6, 3, 1),
    (2, 3, 1, 5): (15, 1, 7, 3),
    (2, 1, 3): (3, 7, 1),
    (3, 1): (1, 5),
    (1, 2, 3): (1, 3, 1),
    (2, 3, 1): (1, 2, 9),
}

# Each takes values of the dtype in question from make(*shape) and lays them out.
LAYOUTS = {
    "contiguous": lambda make: make(7, 11),
    "vector body and tail": lambda make: make(1031),
    "0-dim": lambda make: make(),
    "empty with a shape": lambda make: make(2, 0, 3),
    "channels_last": lambda make: make(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_3d": lambda make: make(2, 3, 4, 5, 2).to(memory_format=torch.channels_last_3d),
    "some channels": lambda make: make(2, 6, 3, 5).to(memory_format=torch.channels_last)[:, :4],
    "transposed": lambda make: make(7, 11).t(),
    "sliced and transposed": lambda make: make(14, 22)[::2, 1::2].t(),
    "permuted and expanded": lambda make: make(6, 1, 4).permute(2, 1, 0).expand(4, 3, 6),
    "expanded": lambda make: make(7, 1).expand(7, 11),
    "overlapping": lambda make: make(20).unfold(0, 5, 1),
    "size 1 inside": lambda make: make(6, 4).t()[..., None],
    "misaligned": lambda make: make(1000)[3:],
}
for _odd in ODD_STRIDES.items():
    LAYOUTS[f"odd strides: {_odd[0]}"] = lambda make, odd=_odd: make(32).as_strided(*odd)
# In place, these raise an error.
SHARED = ["expanded", "permuted and expanded", "overlapping"]


def make(dtype):
    def values(*shape):
        x = random_with_ties(*shape, dtype=dtype if dtype.is_floating_point else torch.float64)
        return x if dtype.is_floating_point else x.nan_to_num(3, 100, 0).to(dtype)

    return values


def bits(x):
    """The values as integers of the same size, every NaN alike. On arm64 zeros are alike too: there
    torch's sign of a zero depends on whether the element is in a vector."""
    if not x.is_floating_point():
        return x
    if platform.machine() in ("aarch64", "arm64"):
        x = torch.where(x == 0, 0.0, x)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.where(x.isnan(), torch.nan, x).contiguous().view(integer)


def strides(x):
    """The strides of dimensions with more than one element."""
    return [stride for stride, size in zip(x.stride(), x.shape) if size != 1]


def assert_identical(actual, expected, message, of_a_copy=False):
    """Strides too; but in a copy, a dimension of size 1 may have any stride, as in torch's own."""
    __tracebackhide__ = True
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), message
    steps = strides if of_a_copy else torch.Tensor.stride
    assert steps(actual) == steps(expected), message
    assert torch.equal(bits(actual), bits(expected)), message


@pytest.mark.parametrize(
    "operator, layout, dtype",
    sample_if_portable(60, product(CLAMPS, LAYOUTS, (*DTYPES, *INTEGERS))),
    ids=str,
)
def test_values_dtypes_and_strides(operator, layout, dtype):
    """They are torch's with a gradient to record, without one, inside a transform, and in place."""
    plain = LAYOUTS[layout](make(dtype)).detach()
    record_modes = [False, True] if dtype.is_floating_point else [False]
    for bounds in BOUNDS[operator]:
        expected = getattr(torch, operator)(plain, *bounds)
        # With a bound of NaN, x is copied first, so that it may change afterwards.
        copied = any(b is not None and b != b for b in bounds)
        calls = {c: partial(getattr(clampgrad, operator), gradient=c) for c in CONVENTIONS}
        if operator != "clamp" or None not in bounds:
            calls["mingrad"] = getattr(torch.ops.clampgrad, operator + "_mingrad")
        for (name, f), recorded in product(calls.items(), record_modes):
            y = f(plain.detach().requires_grad_(recorded), *bounds).detach()
            message = f"{bounds} {name}, recorded: {recorded}"
            assert_identical(y, expected, message, of_a_copy=recorded and copied)
            if recorded and name != "mingrad":
                y = torch.func.vjp(lambda x: f(x, *bounds), plain)[0]  # noqa: B023
                assert_identical(y, expected, f"{message}, transformed")
        if layout in SHARED or expected.dtype != dtype:
            continue  # in place, an error
        for recorded in record_modes:
            stock = LAYOUTS[layout](make(dtype))
            x = LAYOUTS[layout](lambda *s: make(dtype)(*s).requires_grad_(recorded).clone())  # noqa: B023
            getattr(torch, operator + "_")(stock, *bounds)
            assert getattr(clampgrad, operator + "_")(x, *bounds) is x
            assert x.requires_grad == recorded
            assert_identical(x.detach(), stock, f"{bounds}, in place")


CALLS = {
    "numbers": lambda m, x: m.clamp(x, 0, 1),
    "one number": lambda m, x: m.clamp_min(x, 0),
    "one Tensor": lambda m, x: m.clamp_min(x, torch.zeros_like(x)),
    "two Tensors": lambda m, x: m.clamp(x, torch.zeros_like(x), torch.ones_like(x)),
    "another layout": lambda m, x: m.maximum(x, torch.ones(x.shape)),
    "broadcast": lambda m, x: m.maximum(x, torch.zeros(x.shape[-1:])),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_results_and_gradients(layout, call):
    """With other strides, a convolution before the clamp sums in another
    order. A tangent changes nothing."""
    x = LAYOUTS[layout](lambda *shape: torch.randn(shape)).detach().requires_grad_()
    stock, result = (CALLS[call](m, x) for m in (torch, clampgrad))
    assert_identical(result.detach(), stock.detach(), call)
    with fwad.dual_level():
        dual = fwad.make_dual(x, x.detach().view_as(x))
        beside = [fwad.unpack_dual(CALLS[call](m, dual)).primal for m in (torch, clampgrad)]
    if layout != "permuted and expanded":  # docs/support.md
        assert_identical(beside[1].detach(), beside[0].detach(), call, of_a_copy=True)
    g = torch.randn(stock.shape)
    expected, actual, *others = (torch.autograd.grad(y, x, g)[0] for y in (stock, result, *beside))
    for gradient in (actual, *others):
        assert_same(gradient, expected)
    if "layout" not in call and "broadcast" not in call:  # torch's own may lie as either argument
        assert strides(actual) == strides(expected)


@pytest.mark.compiled("the portable implementation saves the arguments themselves")
@pytest.mark.of_kernels("elsewhere compositions save the arguments themselves, and raise")
@pytest.mark.parametrize("differentiated", [False, True])
def test_a_bound_may_change_beside_a_tangent(differentiated):
    """The composed path has kept a copy, for a constant without its repetitions."""
    values = torch.zeros(3, requires_grad=differentiated)
    x = torch.tensor([[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]], requires_grad=True)
    with fwad.dual_level():
        bound = values.expand(2, 3)
        y = clampgrad.clamp(fwad.make_dual(x, torch.ones_like(x)), bound, gradient="half")
        kept = y.grad_fn._saved_min.untyped_storage().nbytes()
        assert kept == (6 if differentiated else 3) * 4
        with torch.no_grad():
            values.fill_(9)
        (g,) = torch.autograd.grad(fwad.unpack_dual(y).primal.sum(), x)
    assert g.tolist() == [[0, 0.5, 1], [1, 0.5, 0]]


OUTS = {
    "right": lambda x: torch.empty(6, 5),
    "to be resized": lambda x: torch.empty(0),
    "other strides": lambda x: torch.empty(5, 6).t(),
    "a slice": lambda x: torch.empty(12, 10)[::2, ::2],
    "the input": lambda x: x,
}


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("operator", CLAMPS)
def test_out_matches_torch(operator, out):
    ops = torch.ops.clampgrad
    packets = getattr(ops, operator).out, getattr(ops, operator + "_mingrad").out
    for function in (getattr(clampgrad, operator), *packets):
        results = []
        for call in (getattr(torch, operator), function):
            x = random_with_ties(6, 5)
            given = OUTS[out](x)
            assert call(x, 0.5, out=given) is given
            results.append(given)
        assert_identical(*results[::-1], out)


@pytest.mark.parametrize("operator", CLAMPS)
def test_weights_are_clipped_without_recording(operator):
    """The usual way to keep a parameter within bounds."""
    weight = torch.nn.Parameter(random_with_ties(50))
    with torch.no_grad():
        getattr(clampgrad, operator + "_")(weight, 0.5)
    assert_identical(weight.detach(), getattr(torch, operator)(random_with_ties(50), 0.5), operator)


@pytest.mark.compiled("the portable implementation has one path")
@pytest.mark.of_kernels("elsewhere compositions take it")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_take_every_floating_dtype(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    of_numbers = clampgrad.clamp(x, 0, 1), clampgrad.clamp_(x * 1, 0, 1)
    for y in (*of_numbers, clampgrad.clamp(x, x, x), clampgrad.maximum(x, x)):
        assert "RecordedBackward" in y.grad_fn.name()
