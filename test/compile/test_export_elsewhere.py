"""A decomposed graph runs without this package: torch.export, ONNX, AOTInductor."""

import sys

import pytest
import torch

import clampgrad
import clampgrad.nn
from testing.comparing import random_with_ties
from testing.processes import run

pytestmark = pytest.mark.slow

# The runner: it cannot import clampgrad, and has none of our operators.
ALONE = """
import sys
sys.modules["clampgrad"] = None
import torch
x, expected = torch.load(sys.argv[1] + "/data.pt")
{load}
assert not torch._C._dispatch_has_kernel("clampgrad::clamp")
torch.testing.assert_close(f(x), expected, rtol=0, atol=0)
"""
LOAD = {
    "export": "f = torch.export.load(sys.argv[1] + '/model.pt2').module()",
    "aoti": "f = torch._inductor.aoti_load_package(sys.argv[1] + '/model.pt2')",
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + "/model.onnx")
name, = (v.name for v in session.get_inputs())
f = lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])
""",
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 8), clampgrad.nn.ReLU6(gradient="half")
        self.bound = torch.nn.Parameter(torch.zeros(8))
        with torch.no_grad():
            self.inner.weight.copy_(torch.eye(8))  # exact, whatever the order of a sum
            self.inner.bias.fill_(1)

    def forward(self, x):
        x = clampgrad.clamp(self.inner(x), -1.0, 1.5, gradient="straight_through")
        return clampgrad.maximum(self.outer(x), self.bound) + clampgrad.clamp(x, self.bound, 1)


class Theirs(Model):
    """A module of PyTorch's own operators, to be pinned."""

    def forward(self, x):
        x = torch.clamp(self.inner(x), -1.0, 1.5)
        return torch.maximum(x.clone().clamp_(min=0), self.bound) + x.clamp(self.bound)


def check_alone(kind, model, x, folder):
    torch.save((x, model(x).detach()), folder / "data.pt")
    script = ALONE.format(load=LOAD[kind])
    ended = run(sys.executable, "-c", script, folder, cwd=folder)
    assert ended.returncode == 0, ended.stderr


X = random_with_ties(5, 8, nan=False).clamp(-9, 9)


@pytest.mark.parametrize("kind", ["export", "aoti"])
@pytest.mark.parametrize("pin", [None, "half"])
def test_it_runs_alone(kind, pin, tmp_path):
    model, file = (Theirs if pin else Model)().eval(), str(tmp_path / "model.pt2")
    rows = torch.export.Dim("rows")
    with clampgrad.pin(pin):
        program = torch.export.export(model, (X,), dynamic_shapes={"x": {0: rows}})
        program = program.run_decompositions()
        operators = {n.target for n in program.graph.nodes if n.op == "call_function"}
        assert {f.namespace for f in operators} == {"aten"}
        assert torch.ops.aten.clamp.default in operators
        if kind == "export":
            torch.export.save(program, file)
        else:
            torch._inductor.aoti_compile_and_package(program, package_path=file)
    check_alone(kind, model, X, tmp_path)


@pytest.mark.of_cpus("the runner is onnxruntime's for CPUs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_onnx(tmp_path):
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} writes or runs ONNX: install it")
    model = Model().eval()
    program = torch.onnx.export(model, (X,), dynamo=True, verbose=False)
    nodes = list(program.model.graph)
    assert "Clip" in {node.op_type for node in nodes}
    assert {node.domain for node in nodes} == {""}  # ONNX's own operators alone
    program.save(tmp_path / "model.onnx")
    check_alone("onnx", model, X, tmp_path)
