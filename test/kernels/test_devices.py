"""Tensors of several devices: we accept what torch accepts, such as 0-dim CPU tensors in maximum; the rest raises
torch's own error. Without a GPU the other device is meta, where clamp takes them too, and which has no values."""

from itertools import product

import pytest
import torch

import clampgrad
from common import assert_same, outcome, tied
from matrix.reference import ARGUMENTS, CLAMPS
from oracle import EXACT

OTHER = "cuda" if torch.cuda.is_available() else "meta"


def arguments(operator, where):
    """For each argument: a 0-dim CPU tensor, a vector on the CPU, or one on the device."""
    made = {
        "scalar": lambda i: torch.tensor([0.0, 0.5, 1.0][i], device="cpu"),
        "vector": lambda i: tied(12, seed=i).cpu(),
        "device": lambda i: tied(3, 12, seed=i).to(OTHER),
    }
    return [made[w](i) for i, w in enumerate(where)]


@pytest.mark.skipif(
    OTHER == "meta" and clampgrad.implementation == "portable",
    reason="it computes the gradients of all arguments, which meta cannot",
)
@pytest.mark.parametrize("operator", ARGUMENTS)
def test_devices_mix_as_in_torch(operator):
    count = len(ARGUMENTS[operator])
    for where in product(("scalar", "vector", "device"), repeat=count):
        args = arguments(operator, where)
        expected = outcome(getattr(torch, operator), *args)
        for chosen in product((False, True), repeat=count):
            leaves = [a.clone().requires_grad_(c) for a, c in zip(args, chosen)]
            y = outcome(getattr(clampgrad, operator), *leaves)
            if isinstance(expected, tuple):
                assert y[0] is expected[0], (where, chosen)
                continue
            assert y.requires_grad == any(chosen)
            assert (y.shape, y.device) == (expected.shape, expected.device)
            if y.device.type != "meta":
                assert_same(y.detach(), expected)
            # The gradient of a CPU scalar is copied there, which meta cannot.
            for leaf in leaves:
                if leaf.requires_grad and (leaf.device == y.device or OTHER != "meta"):
                    (gradient,) = torch.autograd.grad(y.sum(), leaf, retain_graph=True)
                    assert (gradient.device, gradient.shape) == (leaf.device, leaf.shape)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
def test_a_cpu_scalar_in_place_and_beside_a_number(name):
    for other in (torch.tensor(0.0), torch.tensor(0.0, dtype=torch.float64)):
        bounds = (other, 1.0) if name == "clamp_min" else (0.0, other)
        x = torch.randn(3, device=OTHER, requires_grad=True)
        for ours, torchs in [
            (
                lambda: getattr(clampgrad, name + "_")(x * 1, other),
                lambda: getattr(torch, name + "_")(x * 1, other),
            ),
            (
                lambda: clampgrad.clamp(x, *bounds),
                lambda: torch.clamp_max(torch.clamp_min(x, bounds[0]), bounds[1]),
            ),
        ]:
            y, expected = outcome(ours), outcome(torchs)
            if isinstance(expected, tuple):
                assert y[0] is expected[0]
            else:
                assert y.device == torch.autograd.grad(y.sum(), x)[0].device == x.device


@pytest.mark.skipif(OTHER == "meta", reason="needs values on a GPU")
@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", [o for o in ARGUMENTS if o not in CLAMPS])
def test_a_cpu_scalar_has_the_gradient_of_one_on_the_device(operator, convention):
    g = torch.randint(1, 9, (3, 12), device=OTHER).float()
    for where in ("device", "scalar"), ("scalar", "device"):
        args, results = arguments(operator, where), []
        for moved in (False, True):
            leaves = [a.to(OTHER if moved else a.device).clone().requires_grad_() for a in args]
            y = getattr(clampgrad, operator)(*leaves, gradient=convention)
            results.append([v.cpu() for v in torch.autograd.grad(y, leaves, g)])
        for one, other in zip(*results):
            assert_same(one, other)
