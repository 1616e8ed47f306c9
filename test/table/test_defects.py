"""Wrong gradients, wrong results and crashes that were found, where no other file has the class of them."""

import pytest
import torch

import clampgrad
from common import assert_same
from oracle import TABLE

OPS = torch.ops.clampgrad


# ---- Private operators ----------------------------------------------------------------------------

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
    "pseudo gradient": "ops._pseudo_gradient(torch.ones(4), *3 * [torch.ones(4) > 0], 'half', False)",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_private_operators_check_what_they_are_given(wrong):
    names = {"torch": torch, "ops": OPS}
    with pytest.raises((ValueError, RuntimeError)):
        eval(WRONG[wrong], names)
    with_grad = WRONG[wrong].replace("torch.ones(4)", "torch.ones(4, requires_grad=True)")
    with pytest.raises((ValueError, RuntimeError)):
        eval(with_grad, names)


def test_a_composed_operator_reads_its_names_in_backward():
    y = OPS._clamp_composed(torch.ones(4, requires_grad=True), 0.0, 1.0, "none", False)
    with pytest.raises(ValueError, match="unknown gradient 'none'"):
        y.sum().backward()


@pytest.mark.parametrize(
    "size, order", [([6, 4], []), ([6, 4], [1, 0]), ([2, 3, 1, 5], [0, 2, 3, 1])]
)
def test_masks_have_the_same_strides_on_meta(size, order):
    bits = torch.zeros(8, dtype=torch.uint8)
    mask, on_meta = (OPS._mask(b, size, 2, 1, order) for b in (bits, bits.to("meta")))
    assert mask.stride() == on_meta.stride() and mask.dtype == on_meta.dtype == torch.bool


@pytest.mark.compiled("the portable implementation saves no bits")
@pytest.mark.parametrize(
    "bounds", [(0, 6), (torch.zeros(4), None), (torch.zeros(4), 6 * torch.ones(4))]
)
def test_bits_that_come_back_as_another_kind_of_tensor(bounds):
    """No kernel reads the memory of a tensor that has none."""
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    x = torch.tensor([-1.0, 0.0, 3.0, 9.0], requires_grad=True)
    (expected,) = torch.autograd.grad(clampgrad.clamp(x, *bounds).sum(), x)
    for unpack in (lambda b: two_tensor(b, b), lambda b: torch._neg_view(torch.neg(b))):
        with torch.autograd.graph.saved_tensors_hooks(lambda b: b, unpack):
            y = clampgrad.clamp(x, *bounds)
            (found,) = torch.autograd.grad(y.sum(), x)
        assert_same(found.a if isinstance(found, two_tensor) else found, expected)


# ---- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias, name", TABLE["aliases"].items())
def test_aliases(alias, name):
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, torch.nan], requires_grad=True)
    for bounds in ((0, 1), (torch.zeros(6), torch.ones(6)), (0, torch.ones(6))):
        for clamp in (clampgrad.clamp, lambda x, *b, **k: clampgrad.clamp_(x * 1, *b, **k)):
            found, expected = (
                torch.autograd.grad(clamp(x, *bounds, gradient=g), x, torch.linspace(-2, 2, 6))[0]
                for g in (alias, name)
            )
            assert_same(found, expected)
    with clampgrad.pin(alias):
        assert clampgrad.pin.current() == name
    if name == "straight_through":
        with pytest.raises(ValueError, match="for clamps only"):
            clampgrad.maximum(x, x, gradient=alias)
