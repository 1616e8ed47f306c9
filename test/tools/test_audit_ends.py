"""An audit ends with its block: it leaves no hook, no mode and no stance behind."""

import gc
import weakref

import torch

import clampgrad


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def clamp(x):
    return x.clamp(0, 1)


def test_a_graph_is_freed_without_the_garbage_collector():
    """A hook that holds its own node keeps every Tensor that the graph has saved."""
    gc.collect()
    gc.disable()
    try:
        with clampgrad.audit() as report:
            saved = torch.ones(2)
            y = clamp(leaf(0.5, 1.0) * saved)
            freed = weakref.ref(saved)
            del saved, y
            assert freed() is None
    finally:
        gc.enable()
    assert len(report) == 1


def test_a_gradient_that_arrives_after_the_block_does_not_count():
    with clampgrad.audit() as report:
        y = clamp(leaf(0.5, 1.0) * 1)
    y.sum().backward()
    assert report.summary().startswith("No gradient reached the only call site")


def test_a_graph_that_outlives_the_block_keeps_no_report():
    with clampgrad.audit() as report:
        y = clamp(leaf(0.5, 1.0) * 1)
    kept = weakref.ref(report)
    del report
    gc.collect()
    assert kept() is None and y.grad_fn
