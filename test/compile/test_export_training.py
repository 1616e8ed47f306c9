"""A graph that is trained on keeps its convention: exported, saved and loaded, or made of aten."""

import pytest
import torch
from torch.export.experimental import _export_forward_backward

import clampgrad
from common import assert_same, eager, tied
from compile.test_compile_training import several as every_kind
from oracle import CONVENTIONS, EXACT


class Module(torch.nn.Module):
    def __init__(self, convention):
        super().__init__()
        self.convention = convention
        self.lo = torch.nn.Parameter(torch.zeros(8))
        self.hi = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return every_kind(x, self.lo, self.hi, self.convention)


def slopes(module, x):
    """Of the input and of both bounds; all sums of ties are exact here."""
    leaf = x.clone().requires_grad_()
    bounds = [dict(module.named_parameters())[name] for name in ("lo", "hi")]
    return torch.autograd.grad(module(leaf), [leaf, *bounds], torch.ones_like(x))


def example():
    return tied(5, 8, nan=False).clamp(-9, 9)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_fine_tuning_an_exported_module(convention, tmp_path):
    module, x = Module(convention), example()
    program = torch.export.export(module, (x,))
    operators = [n.target for n in program.graph.nodes if n.op == "call_function"]
    assert {"clampgrad", "aten"} == {f.namespace for f in operators}
    torch.export.save(program, tmp_path / "module.pt2")
    expected = slopes(module, x)
    for exported in (program, torch.export.load(tmp_path / "module.pt2")):
        for found, wanted in zip(slopes(exported.module(), x), expected):
            assert_same(found, wanted)


@pytest.mark.parametrize("convention", EXACT)
def test_forward_and_backward_in_one_graph(convention):
    """Decomposed together, they are aten operators that compute our gradient."""

    class Loss(Module):
        def forward(self, x):
            return super().forward(x).sum()

    module, x = Loss(convention), example()
    joint = _export_forward_backward(torch.export.export(module, (x,)))
    operators = [n.target for n in joint.graph.nodes if n.op == "call_function"]
    assert {f.namespace for f in operators} == {"aten"}
    _, lo, hi = joint.graph_module(module.lo.detach(), module.hi.detach(), x)
    wanted = torch.autograd.grad(module(x), list(module.parameters()))
    assert_same(lo, wanted[0])
    assert_same(hi, wanted[1])


# ---- TorchScript -----------------------------------------------------------------------------------


def several(x: torch.Tensor, y: torch.Tensor, bound: float):
    z = clampgrad.clamp(x, 0, bound, gradient="half") + clampgrad.clamp_min_(x * 1, 0.0)
    z = z + clampgrad.clamp_with_grad(x, 0, y) + clampgrad.clamp_with_grad(x, max=1, maximize=True)
    z = z + clampgrad.clamp(x, y, bound, gradient="joint") + clampgrad.clamp_max(x, 1)
    z = z + clampgrad.clamp_(x * 1, min=0, gradient="inclusive")
    return z + clampgrad.clamp(x, y, y + 1) + clampgrad.maximum(x, y, gradient="joint")


def within_one(x: torch.Tensor, y: torch.Tensor):
    return several(x, y, 1.0)


MADE = {
    "traced": lambda args: torch.jit.trace(within_one, args),
    "scripted": lambda args: torch.jit.script(within_one),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("how", MADE)
def test_torchscript(how, tmp_path):
    """Of Tensors without dimensions too, which are no numbers."""
    args = example(), example().flip(0)
    script = MADE[how](args)
    script.save(str(tmp_path / "script.pt"))
    for function in (script, torch.jit.load(str(tmp_path / "script.pt"))):
        for given in (args, (torch.zeros(()), torch.zeros(()))):
            expected = eager(within_one, given, torch.ones_like(given[0]))
            for _ in range(3):  # the executor looks twice before it specialises
                assert_same(function(*given), within_one(*given))
                found = eager(function, given, torch.ones_like(given[0]))
                for actual, wanted in zip(found, expected):
                    assert_same(actual, wanted)
