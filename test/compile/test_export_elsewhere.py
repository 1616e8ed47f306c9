"""A decomposed graph runs where this package is not: torch.export, ONNX, AOTInductor."""

import subprocess
import sys

import pytest
import torch

import clampgrad
import clampgrad.nn
from common import tied

pytestmark = pytest.mark.thorough

# What runs it: no clampgrad to import, no operator of ours.
ALONE = """
import sys
sys.modules["clampgrad"] = None
import torch
x, expected = torch.load(sys.argv[1] + "/data.pt")
{load}
assert not torch._C._dispatch_has_kernel("clampgrad::clamp")
torch.testing.assert_close(run(x), expected, rtol=0, atol=0)
"""
LOAD = {
    "export": "run = torch.export.load(sys.argv[1] + '/model').module()",
    "aoti": "run = torch._inductor.aoti_load_package(sys.argv[1] + '/model')",
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + "/model")
name, = (v.name for v in session.get_inputs())
run = lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])
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
    """With PyTorch's own operators, to be pinned."""

    def forward(self, x):
        x = torch.clamp(self.inner(x), -1.0, 1.5)
        return torch.maximum(x.clone().clamp_(min=0), self.bound) + x.clamp(self.bound)


@pytest.fixture
def model():
    return Model().eval(), tied(5, 8, nan=False).clamp(-9, 9)


def check_alone(kind, model, x, folder):
    torch.save((x, model(x).detach()), folder / "data.pt")
    script = ALONE.format(load=LOAD[kind])
    run = subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=folder, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def exported(model, x):
    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: rows}})
    program = program.run_decompositions()
    operators = {n.target for n in program.graph.nodes if n.op == "call_function"}
    assert {f.namespace for f in operators} == {"aten"}
    assert torch.ops.aten.clamp.default in operators
    return program


def test_export(model, tmp_path):
    torch.export.save(exported(*model), str(tmp_path / "model"))
    check_alone("export", *model, tmp_path)


@pytest.mark.compiled("a graph that is captured under the portable pin keeps it")
def test_export_under_a_pin(model, tmp_path):
    model = Theirs().eval(), model[1]
    with clampgrad.pin("half"):
        torch.export.save(exported(*model), str(tmp_path / "model"))
    check_alone("export", *model, tmp_path)


def check_aot_inductor(model, folder):
    package = torch._inductor.aoti_compile_and_package(
        exported(*model), package_path=str(folder / "model.pt2")
    )
    (folder / "model.pt2").rename(folder / "model")
    assert package
    check_alone("aoti", *model, folder)


@pytest.mark.slow
def test_aot_inductor(model, tmp_path):
    check_aot_inductor(model, tmp_path)


@pytest.mark.slow
@pytest.mark.compiled("a graph that is captured under the portable pin keeps it")
def test_aot_inductor_under_a_pin(model, tmp_path):
    with clampgrad.pin("half"):
        check_aot_inductor((Theirs().eval(), model[1]), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_onnx(model, tmp_path):
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} writes or runs ONNX: install it")
    module, x = model
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    nodes = list(program.model.graph)
    assert "Clip" in {node.op_type for node in nodes}
    assert {node.domain for node in nodes} == {""}  # ONNX's own operators alone
    program.save(tmp_path / "model")
    check_alone("onnx", module, x, tmp_path)
