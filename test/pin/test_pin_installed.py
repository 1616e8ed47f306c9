"""pin("installed"): a program keeps its gradients, and gets the kernels."""

import functools
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

import clampgrad
from clampgrad._pin.installed import measure_convention
from clampgrad._torch.torchs_functions import TORCHS
from oracle import TABLE
from testing.comparing import eager
from testing.processes import python
from testing.releases import OF_NO_CONVENTION, RELEASED

SAVED = torch.autograd.graph.saved_tensors_hooks


@pytest.fixture(autouse=True)
def measured_anew():
    measure_convention.cache_clear()
    yield
    measure_convention.cache_clear()


def current():
    with clampgrad.pin("installed"):
        return clampgrad.pin.current()


def test_in_a_transform():
    def f(x):
        assert current() == RELEASED
        return x

    torch.func.grad(f)(torch.zeros(()))


class NothingIsClamped(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0] * 1 if func is torch.clamp else func(*args, **(kwargs or {}))


def refused(_):
    raise RuntimeError("this hook takes nothing")


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "tensors without values": FakeTensorMode,
    "another device": lambda: torch.device("meta"),
    "a mode that changes calls": NothingIsClamped,
    "hooks of saved tensors": lambda: SAVED(refused, refused),
    "another pin": lambda: clampgrad.pin("half"),
    "nothing": nullcontext,
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_surrounds_the_first_call_does_not_matter(context):
    with CONTEXTS[context]():
        assert current() == RELEASED


@pytest.mark.compiled("the portable implementation is made of these functions")
@pytest.mark.parametrize("gradient", [*clampgrad.EXACT, None])
def test_a_torch_that_was_patched(gradient, monkeypatch):
    """Its convention, or an error if it has none. A patched torch has its functions from the start;
    those that a program puts in their place are not measured."""
    for name in TABLE["operators"]:
        convention = gradient or ("half" if name == "clamp" else "joint")
        function = functools.partial(getattr(clampgrad, name), gradient=convention)
        monkeypatch.setattr(TORCHS, name, function)
    if gradient:
        assert current() == gradient
    else:
        with pytest.raises(RuntimeError, match="of no convention.*clampgrad survey"):
            clampgrad.pin("installed")


EXTENDED = """
import sys
import torch
import clampgrad

class Seven(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.maximum(x, y)
    @staticmethod
    def backward(ctx, g):
        return 7 * g, 7 * g

def slope():
    x = torch.tensor(2.0, requires_grad=True)
    return torch.autograd.grad(torch.maximum(x, torch.tensor(1.0)), x)[0].item()

def current():
    with clampgrad.pin("installed"):
        return clampgrad.pin.current()

pinned_before = sys.argv[1] == "after"
before = pinned_before and current()
library = torch.library.Library("aten", "IMPL")
library.impl("maximum", Seven.apply, "Autograd")
assert slope() == 7
for _ in range(2):
    try:
        current()
        sys.exit("no error")
    except RuntimeError as error:
        assert "of no convention" in str(error), error
with clampgrad.pin("half"):
    assert slope() == 1  # it is named
assert slope() == 7
library._destroy()
assert slope() == 1 and current() == (before or current())
"""


@pytest.mark.parametrize("registered", ["before", "after"])
def test_an_extension_with_a_derivative_of_its_own(registered):
    """Registered for all backends at once, before the first pin of the process or after it. Our
    kernels, which are there after it, are not what is measured."""
    python("-c", EXTENDED, registered)


@pytest.mark.skipif(not OF_NO_CONVENTION, reason="the releases differ there")
@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_one_difference_on_2_14(name):
    """docs/support.md"""

    nan, g = torch.full((1,), torch.nan), torch.ones(1)
    assert eager(getattr(torch, name), [nan, nan], g) == [g, g]
    with clampgrad.pin("installed"):
        assert eager(getattr(torch, name), [nan, nan], g) != [g, g]


# ---- A network -----------------------------------------------------------------------------------


def rounded(x):
    """To quarters, with the gradient of x."""
    return x + (torch.round(x * 4) / 4 - x).detach()


def trained():
    """What a few steps end with, its gradients, and how many bytes the forward saved."""
    torch.manual_seed(0)
    first, second = torch.nn.Conv2d(1, 8, 3), torch.nn.Conv2d(8, 8, 3)
    images, lo = (
        torch.randn(16, 1, 12, 12, requires_grad=True),
        torch.zeros(8, 1, 1, requires_grad=True),
    )
    leaves, saved = [images, lo, *first.parameters(), *second.parameters()], []
    optimizer = torch.optim.SGD(leaves, lr=0.5)
    pack = lambda t: saved.append(t.untyped_storage().nbytes()) or t  # noqa: E731
    for _ in range(5):
        optimizer.zero_grad()
        with SAVED(pack, lambda t: t):
            x = torch.clamp(rounded(first(torch.clamp(rounded(images), 0, 1))), 0, 0.5)
            x = torch.maximum(rounded(second(x)), lo)
            x = torch.clamp(x.clamp_(min=-0.5), lo, lo + 0.25).mean((2, 3))
        (x - 0.3).square().mean().backward()
        optimizer.step()
    return [t.detach() for leaf in leaves for t in (leaf, leaf.grad)], sum(saved)


@pytest.mark.of_kernels("torch may have no convolution there")
@torch.backends.cudnn.flags(enabled=True, deterministic=True)
def test_a_network_to_the_bit():
    before, saved_before = trained()
    with clampgrad.pin("installed"):
        after, saved_after = trained()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    if clampgrad.implementation == "compiled":
        assert saved_after < 0.8 * saved_before
    with clampgrad.pin("half"):  # it does depend on the convention
        assert not all(torch.equal(a, b) for a, b in zip(before, trained()[0], strict=True))
