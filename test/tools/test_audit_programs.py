"""Programs that are audited: whatever runs without an audit runs under one, and the report survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import clampgrad
from clampgrad.cli import main

pytestmark = pytest.mark.thorough

X = torch.tensor([-1.0, 0.0, 0.5, 2.0])


def leaf():
    return X.clone().requires_grad_()


# ---- Whatever runs without an audit runs under one -----------------------------------------------


def batched(vectorize):
    return torch.autograd.functional.jacobian(
        lambda x: torch.clamp(x, 0, 1), X, vectorize=vectorize
    )


def is_grads_batched():
    x = leaf()
    return torch.autograd.grad(x.clamp(0, 1), x, torch.eye(4), is_grads_batched=True)[0]


def default_device():
    torch.set_default_device("meta")
    try:
        return torch.clamp(torch.ones(3, device="cpu", requires_grad=True), 0, 1).sum().backward()
    finally:
        torch.set_default_device(None)


def under_device():
    x = leaf()
    with torch.device("meta"):
        x.clamp(0, 1).sum().backward()
    return x.grad


def meta():
    return torch.clamp(torch.empty(3, device="meta", requires_grad=True), 0, 1).shape


def traced():
    return torch.jit.trace(lambda x: torch.clamp(x, 0, 1), X)(X)


def traced_module():
    return torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), X)(X).shape


def nested_functions():
    f = torch.func.vmap(torch.func.grad(lambda x: torch.func.jvp(F.relu, (x,), (x,))[1].sum()))
    return f(X.view(2, 2))


def closed_over():
    """The gradient of a call outside of the transform, taken inside."""
    x = leaf()
    y = x.clamp(0, 1)
    return torch.vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(torch.eye(4))


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3, requires_grad=True).clamp(0, 1).shape


def made_a_graph():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: torch.clamp(x, 0, 1) * 2)(X)
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def exported():
    program = torch.export.export(nn.ReLU(), (X,))
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def symbolic():
    return str(torch.fx.symbolic_trace(nn.Sequential(nn.ReLU6())).graph)


class Counts(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def seen_by_a_dispatch_mode():
    mode, x = Counts(), leaf()
    mode.seen = []
    with mode:
        x.clamp(0, 1).sum().backward()
    return mode.seen


def packed_by_hooks():
    packed, x = [], leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, id):
        x.clamp(0, 1)
    return packed


def twice():
    x = leaf()
    (g,) = torch.autograd.grad((x.clamp(0, 1) ** 2).sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0]


def dual():
    import torch.autograd.forward_ad as fwad

    with fwad.dual_level():
        y = fwad.make_dual(leaf(), torch.ones(4)).clamp(0, 1)
        y.sum().backward()
        return fwad.unpack_dual(y).tangent


def wrong_arguments():
    errors = []
    for call in (
        lambda: torch.clamp(),
        lambda: torch.clamp(X),
        lambda: torch.clamp(X, 0, 1, 2),
        lambda: torch.clamp("x", 0),
        lambda: torch.clamp(X, "0"),
        lambda: torch.clamp(X, 0, torch.zeros(3)),
        lambda: torch.maximum(X, 0),
        lambda: X.half().clamp(max=1e9),
    ):
        try:
            call()
        except Exception as error:
            errors.append((type(error), str(error).splitlines()[0]))
    return errors


def a_view_in_place():
    x = leaf()
    y = x * 1
    y[1:].clamp_(0, 1)
    y.sum().backward()
    return x.grad


def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        return is_grads_batched()
    finally:
        torch.use_deterministic_algorithms(False)


def autocast():
    x = leaf()
    with torch.autocast("cpu", torch.bfloat16):
        F.relu(x.clamp(0, 1) @ torch.ones(4, 4)).sum().backward()
    return x.grad


def hooks():
    y = leaf().clamp(0, 1)
    return y._backward_hooks


def differentiated_around_it():
    """What a clamp outside of a transform returned, in the transform."""
    y = X.clamp(min=0)
    return torch.func.grad(lambda v: (y.log1p() * v).sum())(X)


def indexed():
    x = leaf()
    F.relu(x)[torch.tensor([0, 2])].log1p().sum().backward()
    return x.grad


PROGRAMS = {
    "vectorised jacobian": lambda: batched(True),
    "jacobian": lambda: batched(False),
    "hessian": lambda: torch.autograd.functional.hessian(
        lambda x: (x.clamp(0, 1) ** 2).sum(), X, vectorize=True
    ),
    "sparse": lambda: torch.relu(torch.eye(3).to_sparse()).to_dense(),
    "sparse CSR": lambda: torch.relu(torch.eye(3).to_sparse_csr()).to_dense(),
    "mkldnn": lambda: torch.relu(torch.eye(3).to_mkldnn()).to_dense(),
    "nested": lambda: torch.relu(
        torch.nested.nested_tensor([torch.ones(2), -torch.ones(3)])
    ).to_padded_tensor(0),
    "jagged": lambda: torch.relu(
        torch.nested.nested_tensor([torch.ones(2), -torch.ones(3)], layout=torch.jagged)
    ).values(),
    "quantized": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.quint8).clamp(0, 1).dequantize(),
    "complex": lambda: F.relu(torch.ones(3, dtype=torch.cfloat).real),
    "size 0": lambda: torch.ones(0, 3, requires_grad=True).clamp(0, 1).sum().backward(),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn).float().clamp(0, 1),
    "numpy scalars": lambda: X.clamp(*torch.tensor([0.0, 1.0]).numpy()),
    "16 dimensions": lambda: torch.ones([1] * 16, requires_grad=True).clamp(0, 1).sum().backward(),
} | {
    f.__name__: f
    for f in (
        is_grads_batched, default_device, under_device, meta, traced, traced_module,
        nested_functions, closed_over, fake, made_a_graph, exported, symbolic,
        seen_by_a_dispatch_mode, packed_by_hooks, twice, dual, wrong_arguments, a_view_in_place,
        deterministic, autocast, hooks, indexed, differentiated_around_it,
    )
}  # fmt: skip


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_as_without(name, every):
    program = PROGRAMS[name]

    def outcome():
        try:
            return program()
        except Exception as error:
            return type(error), str(error)

    expected = outcome()
    with clampgrad.audit(every=every) as report:
        actual = outcome()
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert actual == expected
    assert str(report)
    ours = [reason for reason in report.skipped if reason.endswith("in the audit")]
    assert not ours, "nothing may rely on the net under us"


def test_what_cannot_be_counted_is_said():
    with clampgrad.audit() as report:
        for name in ("is_grads_batched", "meta", "sparse", "mkldnn", "nested", "traced"):
            PROGRAMS[name]()
    assert set(report.skipped) == {
        *("batched gradients", "meta tensors", "sparse_coo tensors", "mkldnn tensors"),
        *("nested tensors", "torch.jit.trace"),
    }


def test_a_failure_of_ours_is_no_failure_of_theirs(monkeypatch):
    from clampgrad._tools.audit import mode

    monkeypatch.setattr(mode, "positions", lambda *_: 1 / 0)
    x = leaf()
    with clampgrad.audit() as report:
        x.clamp(0, 1).sum().backward()
    assert x.grad.sum() > 0 and report.skipped == {"ZeroDivisionError in the audit": 1}


# ---- The command ---------------------------------------------------------------------------------

SCRIPT = """
import sys, torch
x = torch.tensor([0.0, 0.5], requires_grad=True)
x.clamp(0, 1).sum().backward()
print("arguments", sys.argv[1:])
{end}
"""


@pytest.fixture
def script(folder_of_programs):
    (folder_of_programs / "sub").mkdir()
    path = folder_of_programs / "sub" / "train.py"

    def write(end=""):
        path.write_text(SCRIPT.format(end=end))
        return "sub/train.py"

    return write


def test_the_program_keeps_its_output_and_its_exit_code(script, capsys):
    assert main(["audit", script("sys.exit(3)"), "--lr", "1"]) == 3
    out, err = capsys.readouterr()
    assert out == "arguments ['--lr', '1']\n"
    assert "The release of PyTorch decides the gradient at 1 of the 1 call" in err
    assert "sub/train.py:4" in err and str(os.getcwd()) not in err


def test_files_are_written_also_of_a_program_that_fails(script, capsys):
    files = ["--json", "a.json", "--picture", "a.png"]
    assert main(["audit", *files, script("raise ValueError('of mine')")]) == 1
    (site,) = json.loads(Path("a.json").read_text())["sites"]
    assert (site["line"], site["elements"], site["at_bound"]) == (4, 2, 1)
    assert site["warnings"][0]["name"] == "conventions-differ"
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert "ValueError: of mine" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    (["--json", "no/such/a.json"], "cannot write no/such/a.json: No such file"),
    (["--picture", "."], "cannot write .: Is a directory"),
    (["--picture", "a.foo"], "--picture a.foo: the name has to end in one of"),
    (["--every", "0"], "--every must be at least 1"),
    (["--fail-on", "everything"], "invalid choice: 'everything'"),
])  # fmt: skip
def test_wrong_options_are_refused_before_the_program_runs(script, arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(["audit", *arguments, script()])
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "") and message in err


@pytest.mark.parametrize("fail_on, end, code", [
    (["conventions-differ"], "", 3),
    (["bound-rounds"], "", 0),
    (["bound-rounds", "conventions-differ"], "sys.exit()", 3),
    (["any"], "sys.exit(0)", 3),
    (["any"], "sys.exit(7)", 7),
    (["any"], "sys.exit('word')", "word"),
    ([], "", 0),
])  # fmt: skip
def test_fail_on(script, fail_on, end, code):
    options = [word for name in fail_on for word in ("--fail-on", name)]
    assert (main(["audit", *options, script(end)]) or 0) == code


def test_a_report_that_fails_keeps_the_exit_code(script, capsys, monkeypatch):
    """Working it out asks the device, which may be of no use after what the program did."""
    monkeypatch.setattr(clampgrad.Report, "__iter__", lambda _: 1 / 0)
    assert main(["audit", "--json", "a.json", script("sys.exit(7)")]) == 7
    err = capsys.readouterr().err
    assert "cannot be reported: division by zero" in err and "cannot write" in err


def test_the_program_may_go_elsewhere(script):
    main(["audit", "--json", "a.json", script("import os; os.chdir('sub')")])
    os.chdir("..")
    assert json.loads(Path("a.json").read_text())["sites"] and not os.path.exists("sub/a.json")


def test_one_file_per_rank(script, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        main(["audit", "--json", "a.json", script()])
    assert all(json.loads(Path(f"a.rank{rank}.json").read_text())["sites"] for rank in "01")
    assert not os.path.exists("a.json")
    err = capsys.readouterr().err
    assert err.count("min_norm  inclusive") == 1 and "rank 1: The release" in err


def test_the_terminal_may_be_gone(script):
    """Both streams closed: the file is written all the same, and the exit code kept."""
    command = f"{sys.executable} -m clampgrad audit --json a.json {script('sys.exit(3)')}"
    done = subprocess.run([*("bash", "-c"), f"{command} >&- 2>&-"])
    assert done.returncode == 3 and json.loads(Path("a.json").read_text())["sites"]
