"""An audit ends with its block: it leaves no hook, no mode and no stance behind."""

import gc
import weakref

import pytest
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


# ---- Compiled functions, modes -------------------------------------------------------------------


def modes():
    return torch.overrides._get_current_function_mode_stack()


def is_compiled():
    """Whether functions that are compiled run compiled."""
    return torch.compile(torch.compiler.is_compiling, backend="eager")()


def test_audits_that_do_not_end_as_a_stack():
    """In tasks, or generators."""
    one, other = clampgrad.audit(), clampgrad.audit()
    assert is_compiled()
    one.__enter__()
    report = other.__enter__()
    assert not is_compiled()
    one.__exit__(None, None, None)
    assert modes() == [other] and not is_compiled()
    torch.relu(leaf(0.0))  # of which Python tells
    other.__exit__(None, None, None)
    assert not modes() and is_compiled()
    assert [f.function for f in report] == ["relu"] and not len(one.report)


def test_an_audit_that_is_open_is_not_entered_again():
    audit = clampgrad.audit()
    with audit, pytest.raises(RuntimeError, match="open already"):
        audit.__enter__()
    assert not modes() and is_compiled()
    with audit as report:  # after its end it is
        clamp(leaf(0.5))
    assert len(report) == 1


# ---- What the audit and its neighbours call ------------------------------------------------------


def in_a_pin():
    with clampgrad.pin("installed"):
        pass


def set_a_pin():
    clampgrad.set_pin("installed")
    clampgrad.set_pin(None)


OURS = {
    "pin": in_a_pin,
    "set_pin": set_a_pin,
    "survey": clampgrad.survey,
    "report": lambda: str(audited()),
}


def audited():
    with clampgrad.audit() as report:
        pass
    return report


@pytest.mark.parametrize("name", OURS)
def test_what_clampgrad_measures_is_not_the_programs(name):
    clampgrad._pin.installed.measured.cache_clear()
    with clampgrad.audit() as report:
        OURS[name]()
    assert not len(report) and not report.skipped and not report.suspects
