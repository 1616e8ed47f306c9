"""Tensors of several devices: we accept what torch accepts, such as 0-dim CPU tensors in maximum;
the rest raises torch's own error. The other device is that of --device, a GPU, or meta, where
torch's clamp takes them too: it has no values."""

from functools import partial
from itertools import permutations, product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import clampgrad
from oracle import CLAMPS, EXACT
from testing.comparing import assert_same, random_with_ties, result_or_error
from testing.matrix.reference import ARGUMENTS

OTHER = torch.get_default_device().type
if OTHER == "cpu":
    OTHER = "cuda" if torch.cuda.is_available() else "meta"


def arguments(operator, where):
    """For each argument: a 0-dim CPU tensor, a vector on the CPU, or one on the device."""
    made = {
        "scalar": lambda i: torch.tensor([0.0, 0.5, 1.0][i], device="cpu"),
        "vector": lambda i: random_with_ties(12, seed=i).cpu(),
        "device": lambda i: random_with_ties(3, 12, seed=i).to(OTHER),
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
        expected = result_or_error(getattr(torch, operator), *args)
        for chosen in product((False, True), repeat=count):
            leaves = [a.clone().requires_grad_(c) for a, c in zip(args, chosen)]
            y = result_or_error(getattr(clampgrad, operator), *leaves)
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


@pytest.mark.skipif(
    clampgrad.implementation == "portable" or OTHER not in ("cuda", "meta"),
    reason="the portable implementation copies from dtype to dtype, a mock device for any operator",
)
@pytest.mark.parametrize("gradient", EXACT)
def test_backward_copies_no_scalar_to_the_device(gradient):
    """A copy waits for the device, and cannot be captured in a graph."""
    x = random_with_ties(12).to(OTHER).requires_grad_()
    scalar = torch.tensor(0.0, device="cpu")  # which clamp takes on meta alone
    for operator in (clampgrad.maximum, clampgrad.fmin):
        total = operator(x, scalar, gradient=gradient).sum()
        with torch.profiler.profile() as profile:
            torch.autograd.grad(total, x)
        called = {event.name for event in profile.events()}
        assert "aten::expand" in called and "aten::copy_" not in called


@pytest.mark.parametrize("gradient", ["half", "with_grad"])
def test_a_scalar_without_a_value_is_not_asked_for_it(gradient):
    with FakeTensorMode():
        x = torch.empty(3, device="meta", requires_grad=True)
        lo = torch.zeros((), device="cpu")
        y = clampgrad.clamp(x, lo, lo + 1, gradient=gradient)
        (g,) = torch.autograd.grad(y.sum(), x)
    assert (g.shape, g.device) == (x.shape, x.device)


class OneDevice(TorchDispatchMode):
    """Every operator but a copy takes tensors of one device, as logical_and must."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        devices = {t.device.type for t in tree_leaves((args, kwargs)) if torch.is_tensor(t)}
        assert len(devices) < 2 or "copy" in str(function), function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in CLAMPS])
def test_what_a_cpu_scalar_is_compared_with(name):
    f = partial(getattr(clampgrad, name), gradient="half")
    for x, y in permutations([torch.tensor(1.0, device="cpu"), torch.ones(3, device=OTHER)]):
        leaf = (x if x.dim() else y).requires_grad_()
        result = f(x, y)
        with OneDevice():
            (gradient,) = torch.autograd.grad(result.sum(), leaf)
        assert gradient.device == leaf.device
    # Forward mode, where the first tangent is on the CPU and what it is compared with is not.
    here, there = torch.tensor(1.0, device="cpu"), torch.tensor(1.0, device=OTHER)
    for function in (f, getattr(torch, name)):
        _, tangent = torch.func.jvp(function, (here, there), (torch.ones_like(here), there))
        assert tangent.device == there.device


def vmapped(f, args, batched, _):
    return torch.func.vmap(f, tuple(0 if i == batched else None for i in range(len(args))))(*args)


def tangent_of_one(f, args, _, i):
    return torch.func.jvp(lambda a: f(*args[:i], a, *args[i + 1 :]), (args[i],), (args[i],))[1]


def gradient_in_vmap(f, args, batched, _):
    return vmapped(torch.func.grad(f, batched), args, batched, _)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("transformed", [vmapped, tangent_of_one, gradient_in_vmap])
def test_cpu_scalars_beside_samples_without_dimensions(name, transformed):
    for batched, other in product(range(len(ARGUMENTS[name])), repeat=2):
        args = [torch.tensor(1.0, device="cpu")] * len(ARGUMENTS[name])
        args[batched] = torch.ones(3, device=OTHER)
        expected, y = (
            result_or_error(transformed, getattr(of, name), args, batched, other)
            for of in (torch, clampgrad)
        )
        if isinstance(expected, tuple):
            assert y[0] is expected[0]
        else:
            assert (y.shape, y.dtype, y.device) == (expected.shape, expected.dtype, expected.device)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
def test_a_cpu_scalar_in_place_and_beside_a_number(name):
    for dtype in (torch.float32, torch.float64):
        other = torch.tensor(0.0, dtype=dtype, device="cpu")
        bounds = (other, 1.0) if name == "clamp_min" else (0.0, other)
        x = torch.randn(3, device=OTHER, requires_grad=True)
        z = x * 1
        in_place = result_or_error(getattr(torch, name + "_"), x * 1, other)
        mixed = result_or_error(lambda *b: torch.clamp_max(torch.clamp_min(x, b[0]), b[1]), *bounds)
        results = (
            result_or_error(getattr(clampgrad, name + "_"), z, other),
            result_or_error(clampgrad.clamp, x, *bounds),
        )
        for y, expected in zip(results, (in_place, mixed)):
            if isinstance(expected, tuple):
                assert y[0] is expected[0]
                continue
            assert (y.shape, y.dtype, y.device) == (expected.shape, expected.dtype, expected.device)
            assert torch.autograd.grad(y.sum(), x)[0].device == x.device
        assert isinstance(in_place, tuple) or results[0] is z


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
