"""An audit ends with its block: it leaves no hook, no mode and no stance behind."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from testing.releases import RELEASE


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
    clampgrad._pin.installed.measure_convention.cache_clear()
    with clampgrad.audit() as report:
        OURS[name]()
    assert not len(report) and not report.skipped and not report.suspects


# ---- Threads that outlive the block --------------------------------------------------------------


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_thread_leaves_the_mode_and_keeps_no_report(pool):
    with clampgrad.audit() as report:
        pool.submit(torch.relu, leaf(0.0)).result()
    assert [f.function for f in report] == ["relu"]
    kept = weakref.ref(report)
    del report
    gc.collect()
    assert kept() is None
    assert pool.submit(lambda: (torch.relu(leaf(0.0)), modes(), sys.getprofile())).result()[1:] == (
        [],
        None,
    )


def test_a_thread_leaves_only_the_audit_that_has_ended(pool):
    with clampgrad.audit() as outer:
        with clampgrad.audit():
            pool.submit(torch.relu, leaf(0.0)).result()
        pool.submit(torch.relu, leaf(0.0)).result()
        assert len(pool.submit(modes).result()) == 1
        pool.submit(torch.relu, leaf(0.0)).result()
    assert [f.calls for f in outer] == [3]
    pool.submit(F.relu, leaf(0.0)).result()
    assert not pool.submit(modes).result()


def test_a_thread_keeps_its_profile_function(pool):
    events = []

    def after():
        sys.setprofile(lambda frame, event, arg: events.append(event))
        profile = sys.getprofile()
        torch.relu(leaf(0.0))
        kept = sys.getprofile() is profile
        sys.setprofile(None)
        return kept

    with clampgrad.audit():
        pool.submit(torch.relu, leaf(0.0)).result()
    assert pool.submit(after).result() and events and not pool.submit(modes).result()


def test_a_thread_leaves_two_audits_at_once_and_compiles(pool):
    with clampgrad.audit(), clampgrad.audit():
        pool.submit(torch.relu, leaf(0.0)).result()
    f = torch.compile(lambda x: x.sin() * 2, backend="eager", fullgraph=True)
    if RELEASE == (2, 11):  # later ones compile it once more
        with pytest.raises(AssertionError, match="Guard failed"):
            pool.submit(f, torch.zeros(1)).result()
    assert pool.submit(f, torch.zeros(1)).result() == 0
    pool.submit(torch.relu, leaf(0.0)).result()
    assert not pool.submit(modes).result() and not pool.submit(sys.getprofile).result()
