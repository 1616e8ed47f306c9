"""A segment that is run again in backward has the convention of its
forward, wherever backward runs."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import clampgrad
from testing.comparing import assert_same
from testing.releases import RELEASE
from testing.slopes import SLOPE_SCRIPT

pytestmark = pytest.mark.thorough

PINS = (None, "half", "straight_through")


def segment(x):
    return torch.clamp(x * 1, 0, 1) * x


def points():
    return torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)


def own(pin, of=segment):
    x = points()
    with clampgrad.pin(pin):
        of(x).sum().backward()
    return x.grad


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("around_backward", PINS)
@pytest.mark.parametrize("around_forward", PINS)
def test_recomputation_has_pin_of_forward(around_forward, around_backward, use_reentrant):
    x = points()
    with clampgrad.pin(around_forward):
        y = checkpoint(segment, x, use_reentrant=use_reentrant)
    with clampgrad.pin(around_backward):
        y.sum().backward()
    assert_same(x.grad, own(around_forward))


def test_nested_segments_under_different_pins():
    """Backward runs in another thread."""
    x = points()

    def outer(x):
        with clampgrad.pin("half"):
            y = checkpoint(segment, x, use_reentrant=False)
        return y + segment(x)

    with clampgrad.pin("straight_through"):
        y = checkpoint(outer, x, use_reentrant=False)
    with set_checkpoint_early_stop(False), ThreadPoolExecutor(1) as pool:
        pool.submit(y.sum().backward).result()
    assert_same(x.grad, own("half") + own("straight_through"))


def test_what_was_recorded_before_the_first_pin_of_the_process(script):
    """An operator that calls functions (test_pin_operators.py) is run again in backward too."""
    text = """
from torch.utils.checkpoint import checkpoint
xs = [torch.tensor([0.0, 2.0], requires_grad=True) for _ in range(3)]
ys = [checkpoint(clamp, x, use_reentrant=how) for x, how in zip(xs, (False, True))]
ys += [torch.cond(torch.tensor(True), clamp, torch.neg, (xs[2],))]
import clampgrad
with clampgrad.pin("straight_through"):
    for y in ys:
        y.sum().backward()
assert [x.grad.tolist() for x in xs] == [slope(clamp)] * 3
"""
    script(SLOPE_SCRIPT + text)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("of", [segment, lambda x: torch.clamp(x, 0, 1)], ids=["two", "one"])
def test_compiled_around_a_segment(of, use_reentrant, backend, request):
    if of is segment and backend == "inductor" and RELEASE in ((2, 14), (2, 15)):
        # Without clampgrad too: where nothing has to be saved, torch's partitioner finds no source.
        no_source = pytest.mark.xfail(raises=BackendCompilerFailed, strict=True)
        request.applymarker(no_source)

    @torch.compile(backend=backend, fullgraph=True)
    def f(x):
        return checkpoint(of, x, use_reentrant=use_reentrant)

    for pin in PINS:
        x = points()
        with clampgrad.pin(pin):
            y = f(x)
        y.sum().backward()
        assert_same(x.grad, own(pin, of))
