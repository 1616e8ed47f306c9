"""A call keeps nothing: no memory over many calls, no reference to its input or result."""

import gc
import weakref
from pathlib import Path

import pytest
import torch

from testing.comparing import CALLS


def arguments():
    """Torch knows the shape of no other test's tensors."""
    return [torch.linspace(-1, 2, 7) + 0 for _ in range(3)]


def resident():
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_is_flat_over_many_calls(many):
    """A tensor is hundreds of bytes: one lost a call would be megabytes."""

    def calls(count):
        leaves = [a.requires_grad_() for a in arguments()]
        g = torch.ones(7)
        for _ in range(count // len(CALLS)):
            for f in CALLS.values():
                torch.autograd.grad(f(*leaves), leaves, g, allow_unused=True)
        gc.collect()

    calls(5_000)
    before = resident()
    calls(many)
    assert resident() - before < 2**20  # what an allocator may round up


@pytest.mark.of_kernels("compositions save what they compare until backward")
@pytest.mark.parametrize("backward", [False, True], ids=["before backward", "after backward"])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_kept_alive(name, backward):
    arguments_ = [a.requires_grad_() for a in arguments()]
    # None of them is a leaf: a leaf is kept by the graph, which must add to its gradient.
    inputs = [a * 1 for a in arguments_]
    y = CALLS[name](*inputs)
    if backward:
        y.sum().backward()
    node = y.grad_fn
    keepers = [weakref.ref(t) for t in (*inputs, y)]
    del inputs, y
    assert [keeper() for keeper in keepers] == [None] * 4
    assert node is not None
