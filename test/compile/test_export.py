"""An exported graph holds our operator, and after run_decompositions() aten operators alone."""

import pytest
import torch

import clampgrad
from common import BOUNDS, assert_same, tied


class Module(torch.nn.Module):
    def __init__(self, name, convention):
        super().__init__()
        self.function, self.convention = getattr(clampgrad, name), convention
        self.bounds = BOUNDS[name.rstrip("_")]

    def forward(self, x):
        x = x + 0  # a value of the graph, so that it may be changed in place
        return self.function(x, **self.bounds, gradient=self.convention)


def namespaces(program):
    return {node.target.namespace for node in program.graph.nodes if node.op == "call_function"}


CASES = [(name, "min_norm", False) for name in BOUNDS] + [("clamp", "half", True)]


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("operator, convention, strict", CASES)
def test_operators(operator, suffix, convention, strict):
    x = tied(5, 8)
    program = torch.export.export(Module(operator + suffix, convention), (x,), strict=strict)
    assert "clampgrad" in namespaces(program)
    decomposed = program.run_decompositions()
    assert namespaces(decomposed) == {"aten"}
    expected = getattr(torch, operator)(x, **BOUNDS[operator])
    assert_same(program.module()(x), expected)
    assert_same(decomposed.module()(x), expected)


def test_dynamic_shapes():
    rows = torch.export.Dim("rows")
    program = torch.export.export(
        Module("clamp", "half"), (tied(5, 8),), dynamic_shapes={"x": {0: rows}}
    ).run_decompositions()
    assert namespaces(program) == {"aten"}
    x = tied(9, 8)
    assert_same(program.module()(x), x.clamp(0, 1))
