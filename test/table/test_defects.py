"""Wrong gradients, wrong results and crashes that were found, if no other file tests that kind."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import clampgrad
from oracle import EXACT, TABLE
from testing.comparing import assert_same, eager

OPS = torch.ops.clampgrad


WRONG = {
    "bits per element": "ops._mask(torch.zeros(8, dtype=torch.uint8), [4], 2, 99, [])",
    "bits on meta": "ops._mask(torch.zeros(8, dtype=torch.uint8, device='meta'), [4], 2, 99, [])",
    "bits": "ops._mask(torch.zeros(8, dtype=torch.uint8), [4096], 2, 1, [])",
    "dtype of bits": "ops._mask(torch.zeros(8), [4], 2, 1, [])",
    "order of a mask": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [1, 1])",
    "long order of a mask": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [0, 1, 2])",
    "order below 0": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [-1, 0])",
    "extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'clamp_min', 'half')",
    "unknown extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'max', 'half')",
    "gradient of an extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'fmax', 'ste')",
}


@pytest.mark.compiled("it is about operators of the library")
@pytest.mark.parametrize("wrong", WRONG)
def test_private_operators_check_what_they_are_given(wrong):
    for ones in ("torch.ones(4)", "torch.ones(4, requires_grad=True)"):
        with pytest.raises((ValueError, RuntimeError)):
            eval(WRONG[wrong].replace("torch.ones(4)", ones), {"torch": torch, "ops": OPS})


LAID_OUT = [([6, 4], []), ([6, 4], [1, 0]), ([2, 3, 1, 5], [0, 2, 3, 1])]


@pytest.mark.compiled("it is about operators of the library")
@pytest.mark.parametrize("size, order", LAID_OUT)
def test_masks_have_the_same_strides_on_meta(size, order):
    bits = torch.zeros(8, dtype=torch.uint8)
    mask, on_meta = (OPS._mask(b, size, 2, 1, order) for b in (bits, bits.to("meta")))
    assert mask.stride() == on_meta.stride() and mask.dtype == on_meta.dtype == torch.bool


@pytest.mark.compiled("the portable implementation saves no bits")
@pytest.mark.parametrize("bounds", [(0, 6), (torch.zeros(4), None), (torch.zeros(4),) * 2])
def test_bits_that_come_back_as_another_kind_of_tensor(bounds):
    """No kernel reads the memory of a tensor that has none."""
    x = torch.tensor([-1.0, 0.0, 3.0, 9.0], requires_grad=True)
    (expected,) = torch.autograd.grad(clampgrad.clamp(x, *bounds).sum(), x)
    for unpack in (lambda b: TwoTensor(b, b), lambda b: torch._neg_view(torch.neg(b))):
        with torch.autograd.graph.saved_tensors_hooks(lambda b: b, unpack):
            (gradient,) = torch.autograd.grad(clampgrad.clamp(x, *bounds).sum(), x)
        assert_same(getattr(gradient, "a", gradient), expected)


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("bounds", [(0, 1), (torch.tensor(0.0), torch.tensor(1.0))], ids=str)
def test_the_gradient_of_a_scalar_keeps_its_sign(bounds, convention):
    """A sum of one -0 is +0."""
    x, g = torch.tensor(0.5, requires_grad=True), torch.tensor(-0.0)

    def f(x, g):
        return torch.autograd.grad(clampgrad.clamp(x, *bounds, gradient=convention), x, g)[0]

    for gradient in (f(x, g), make_fx(f)(x, g)(x, g)):
        assert gradient.signbit()


@pytest.mark.compiled("the portable implementation saves no bits")
@pytest.mark.parametrize("per_element", [1, 2, 3])
def test_masks_are_what_the_bits_say(per_element):
    for n in (0, 1, 63, 64, 65, 700):
        bits = torch.randint(256, (per_element, (n + 63) // 64 * 8), dtype=torch.uint8)
        planes = [int.from_bytes(bytes(plane.tolist()), "little") for plane in bits]
        numbers = [sum((plane >> i & 1) << b for b, plane in enumerate(planes)) for i in range(n)]
        expected = torch.tensor([0b01101010 >> number & 1 for number in numbers], dtype=torch.bool)
        for size, order in (([n], []), ([n, 1], [1, 0])):
            mask = OPS._mask(bits.flatten(), size, 0b01101010, per_element, order)
            assert torch.equal(mask, expected.view(size))


@pytest.mark.compiled("the portable implementation saves its arguments, and raises as torch does")
@pytest.mark.of_kernels("compositions save their arguments")
def test_a_tensor_of_inference_mode_may_be_a_bound():
    """torch cannot save it, and raises; nothing of it is saved here."""
    with torch.inference_mode():
        lo, hi = torch.zeros(4), torch.ones(4)
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0], requires_grad=True)
    for clamp in (clampgrad.clamp, lambda x, *bounds: clampgrad.clamp_(x * 1, *bounds)):
        (gradient,) = torch.autograd.grad(clamp(x, lo, hi).sum(), x)
        assert gradient.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("alias, name", TABLE["aliases"].items())
def test_aliases(alias, name):
    x, g = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, torch.nan]), torch.linspace(-2, 2, 6)
    for bounds in ((0, 1), (torch.zeros(6), torch.ones(6)), (0, torch.ones(6))):
        for clamp in (clampgrad.clamp, lambda x, *b, **k: clampgrad.clamp_(x * 1, *b, **k)):
            actual, expected = (
                eager(lambda x: clamp(x, *bounds, gradient=n), [x], g)[0] for n in (alias, name)
            )
            assert_same(actual, expected)
    with clampgrad.pin(alias):
        assert clampgrad.pin.current() == name
    if name == "straight_through":
        with pytest.raises(ValueError, match="for clamps only"):
            clampgrad.maximum(x, x, gradient=alias)
