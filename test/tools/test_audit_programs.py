"""Programs that are audited: whatever runs without an audit runs under
one, and the report survives."""

import json
import os
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._subclasses.fake_tensor import FakeTensorMode

import clampgrad
from clampgrad._torch.surroundings import leave_function_mode
from testing.comparing import Dispatched, assert_same, result_or_error
from testing.matrix.contexts import CONTEXTS
from testing.matrix.run import calls, check_all
from testing.processes import run

pytestmark = pytest.mark.thorough

X = torch.tensor([-1.0, 0.0, 0.5, 2.0])


def leaf():
    return X.clone().requires_grad_()


def clamp(x):
    return torch.clamp(x, 0, 1)


def slope(f):
    """The gradient of f at X."""
    x = leaf()
    f(x).sum().backward()
    return x.grad


def batched():
    x = leaf()
    return torch.autograd.grad(clamp(x), x, torch.eye(4), is_grads_batched=True)[0]


def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        return batched()
    finally:
        torch.use_deterministic_algorithms(False)


def closed_over():
    """The gradient of a call outside of the transform, taken inside."""
    x = leaf()
    y = clamp(x)
    return torch.vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(torch.eye(4))


def differentiated_around_it():
    """What a clamp outside of a transform returned, in the transform."""
    y = X.clamp(min=0)
    return torch.func.grad(lambda v: (y.log1p() * v).sum())(X)


def fake():
    with FakeTensorMode():
        return clamp(torch.ones(3, requires_grad=True)).shape


def dispatched():
    """What a dispatch mode sees."""
    seen = []
    with Dispatched(seen.append):
        slope(clamp)
    return seen


def a_view_in_place(x):
    y = x * 1
    y[1:].clamp_(0, 1)
    return y


def cond(x):
    return torch.cond(X.sum() > 0, lambda x: clamp(x).sqrt(), lambda x: x * 1, (x,))


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), -torch.ones(3)], layout=layout)


FUNCTIONS = (batched, deterministic, closed_over, differentiated_around_it, fake, dispatched)
INSIDE = ("cond", "map", "scan", "while_loop")  # what these call is not examined
PROGRAMS = {
    "cond": partial(slope, cond),
    "map": partial(slope, partial(map_rows, clamp)),
    "scan": partial(slope, lambda x: scan(lambda c, x: (c + clamp(x), c * x), X[0], x)[0]),
    "while_loop": lambda: while_loop(lambda x: x.sum() > 0, lambda x: (clamp(x) - 1,), (X,))[0],
    "meta": lambda: clamp(torch.empty(3, device="meta", requires_grad=True)).shape,
    "traced": lambda: torch.jit.trace(clamp, X)(X),
    "exported": lambda: str(torch.export.export(nn.ReLU(), (X,)).graph),
    "symbolic": lambda: str(torch.fx.symbolic_trace(nn.Sequential(nn.ReLU6())).graph),
    "hooks": lambda: clamp(leaf())._backward_hooks,
    "sparse": lambda: torch.relu(torch.eye(3).to_sparse()).to_dense(),
    "mkldnn": lambda: torch.relu(torch.eye(3).to_mkldnn()).to_dense(),
    "nested": lambda: torch.relu(nested(torch.strided)).to_padded_tensor(0),
    "jagged": lambda: torch.relu(nested(torch.jagged)).values(),
    "quantized": lambda: clamp(torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)).dequantize(),
    "numpy scalars": lambda: X.clamp(*torch.tensor([0.0, 1.0]).numpy()),
    "16 dimensions": lambda: clamp(torch.ones([1] * 16, requires_grad=True)).sum().backward(),
    "no input": lambda: torch.clamp(),
    "no bound": lambda: torch.clamp(X),
    "a text for a bound": lambda: torch.clamp(X, "0"),
    "a number for a Tensor": lambda: torch.maximum(X, 0),
    "overflow": lambda: X.half().clamp(max=1e9),
    "a view in place": partial(slope, a_view_in_place),
    "indexed": partial(slope, lambda x: F.relu(x)[torch.tensor([0, 2])].log1p()),
    **{f.__name__: f for f in FUNCTIONS},
}


def audit_errors(report):
    """The errors inside the audit itself, which it catches: no program may cause one."""
    return [reason for reason in report.skipped if reason.endswith("in the audit")]


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_as_without(name, every):
    expected = result_or_error(PROGRAMS[name])
    with clampgrad.audit(every=every) as report:
        actual = result_or_error(PROGRAMS[name])
    if isinstance(expected, torch.Tensor):
        assert_same(actual, expected)
    else:
        assert actual == expected
    assert str(report) and not audit_errors(report)


CALL = next(cell for cell in calls() if cell.operator == "clamp" and cell.gradient == "inclusive")


@pytest.mark.parametrize("form", ["function", "pinned method"])
@pytest.mark.parametrize("context", [c for c in CONTEXTS if not CONTEXTS[c].costly])
def test_gradients_hold_in_every_context(context, form):
    """The matrix's, which compares with the table."""
    with clampgrad.audit() as report:
        check_all([replace(CALL, form=form, context=context)])
    assert str(report) and not audit_errors(report)


def test_what_cannot_be_counted_is_said():
    with clampgrad.audit() as report:
        X.long().clamp(0, 1)  # which has no gradient, as the indices of what follows
        X.max(0)
    assert not len(report) and not report.skipped
    with clampgrad.audit() as report:
        for name in ("batched", "meta", "sparse", "mkldnn", "nested", *INSIDE):
            PROGRAMS[name]()
    assert set(report.skipped) == {
        *("batched gradients", "meta tensors", "sparse_coo tensors", "mkldnn tensors"),
        *("nested tensors", *(f"inside {name}" for name in INSIDE)),
    }


def test_a_failure_of_ours_is_no_failure_of_theirs(monkeypatch):
    monkeypatch.setattr("clampgrad._tools.audit.examination.find_positions", lambda *_: 1 / 0)
    x = leaf()
    with clampgrad.audit() as report:
        clamp(x).sum().backward()
    assert x.grad.sum() > 0 and report.skipped == {"ZeroDivisionError in the audit": 1}


SCRIPT = """
import sys, torch
x = torch.tensor([0.0, 0.5], requires_grad=True)
x.clamp(0, 1).sum().backward()
print("arguments", sys.argv[1:])
"""


@pytest.fixture
def script(folder_of_programs):
    """Writes SCRIPT with another end -> its path."""
    path = Path("sub/train.py")
    path.parent.mkdir()

    def write(end=""):
        path.write_text(SCRIPT + end)
        return path

    return write


def sites(file="a.json"):
    return json.loads(Path(file).read_text())["sites"]


def test_the_program_keeps_its_output_and_its_exit_code(script, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    code, out, err = command("audit", script("sys.exit(3)"), "--lr", "1")
    assert (code, out) == (3, "arguments ['--lr', '1']\n")
    assert "Between 2.11 and 2.15 the gradient of 1 call changed: clamp at" in " ".join(err.split())
    assert max(map(len, err.splitlines())) <= 60
    assert "sub/train.py:4" in err and str(os.getcwd()) not in err


def test_files_are_written_where_it_started_also_of_a_program_that_fails(script, command):
    end = "import os; os.chdir('sub'); raise ValueError('of mine')"
    code, _, err = command("audit", "--json", "a.json", script(end))
    assert code == 1 and "ValueError: of mine" in err
    os.chdir("..")
    (site,) = sites()
    assert (site["line"], site["elements"], site["at_bound"]) == (4, 2, 1)
    assert site["warnings"][0]["name"] == "conventions-differ"


@pytest.mark.parametrize(
    "options, end, code",
    [
        ("--fail-on conventions-differ", "", 3),
        ("--fail-on bound-rounds", "", 0),
        ("--fail-on bound-rounds --fail-on conventions-differ", "sys.exit()", 3),
        ("--fail-on any", "sys.exit(0)", 3),
        ("--fail-on any", "sys.exit('word')", "word"),
    ],
)
def test_fail_on(script, options, end, code, command):
    assert (command("audit", *options.split(), script(end))[0] or 0) == code


THREADS = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
def late(then=None):
    time.sleep(0.3)
    torch.tensor([1.0], requires_grad=True).clamp(0, 1).sum().backward()
    if then:
        threading.Thread(target=then).start()
threading.Thread(target=late, args=[late]).start()
threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
pool = ThreadPoolExecutor(1)
pool.submit(print, "from a pool").result()
"""


@pytest.mark.parametrize("end, code", [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_threads_that_outlive_the_main_module_are_waited_for(script, end, code):
    """A pool that is left open ends with Python."""
    command = [sys.executable, "-m", "clampgrad", "audit", "--json", "a.json"]
    assert run(*command, script(THREADS + end)).returncode == code
    assert sorted((s["line"], s["calls"]) for s in sites()) == [(4, 1), (11, 2)]


FORKS = """
import os
if pid := os.fork():
    os.waitpid(pid, 0)
else:
    torch.zeros(1, requires_grad=True).clamp(0, 1).sum().backward()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_process_that_the_program_forks_reports_nothing(script):
    """It ends like the program, and would overwrite the report."""
    command = [sys.executable, "-m", "clampgrad", "audit", "--json", "a.json"]
    assert run(*command, script(FORKS)).stderr.count("Between 2.11") == 1
    assert [s["line"] for s in sites()] == [4]


def test_a_thread_leaves_the_audit_before_it_ends(monkeypatch):
    """What torch still keeps of a thread when Python has let go of it is released later, which
    aborts a program that ends at that moment."""
    left = []

    def leave(mode):
        left.append(threading.get_ident())
        leave_function_mode(mode)

    monkeypatch.setattr("clampgrad._tools.audit.mode.leave_function_mode", leave)
    with clampgrad.audit():
        threads = [threading.Thread(target=torch.ones, args=[1]) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
        assert left == [thread.ident for thread in threads]


@pytest.mark.parametrize("end, code", [("", 2), ("sys.exit(7)", 7)])
def test_a_report_that_fails_keeps_the_exit_code_but_0(script, command, monkeypatch, end, code):
    """Making the report uses the device, which the program may have broken."""
    monkeypatch.setattr(clampgrad.Report, "__iter__", lambda _: 1 / 0)
    actual, _, err = command("audit", "--json", "a.json", script(end))
    assert actual == code
    assert "cannot be reported: division by zero" in err and "cannot write" in err
    assert command("audit", script(end))[0] == code  # where no file is asked for


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("end, code", [("", 2), ("sys.exit(0)", 2), ("sys.exit(7)", 7)])
def test_a_report_that_cannot_be_written(script, command, caplog, end, code):
    """Though the file could be opened: a full disk."""
    options = "audit", "--json", "/dev/full", "--fail-on", "any"
    actual, _, err = command(*options, script(end))
    assert actual == code and "cannot write /dev/full: " in caplog.text and "Between 2.11" in err


def test_one_file_per_rank(script, monkeypatch, command):
    monkeypatch.setenv("WORLD_SIZE", "2")
    printed = ""
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        printed += command("audit", "--json", "a.json", script())[2]
        assert sites(f"a.rank{rank}.json")
    assert not os.path.exists("a.json")
    assert printed.count("min_norm  inclusive") == 1 and "rank 1: Between 2.11 and 2.15" in printed


def test_the_terminal_may_be_gone(script):
    """Both streams closed: the file is written all the same, and the exit code kept."""
    command = f"{sys.executable} -m clampgrad audit --json a.json {script('sys.exit(3)')}"
    assert run("bash", "-c", f"{command} >&- 2>&-").returncode == 3 and sites()
