"""A pin reaches the clamps that torch makes by itself."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import clampgrad
from common import OWN, THROUGH, python, slope

pytestmark = pytest.mark.thorough

COMPOSED = {
    "corrcoef": lambda x: torch.corrcoef(torch.stack([x, -x, x * x])),
    "normalize": lambda x: F.normalize(x, eps=1.0, dim=0),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x * 0, x * 0 - 1),
    "triplet_margin_with_distance_loss": lambda x: F.triplet_margin_with_distance_loss(
        x[None], x[None] * 0, x[None] * 2
    ),
}


def reached():
    return sum(clampgrad._implementation.pin_reached().values())


@pytest.mark.parametrize("name", COMPOSED)
def test_functions_of_torch_that_clamp_inside(name):
    before = reached()
    with clampgrad.pin("half"):
        slope(COMPOSED[name], (0.5, 0.0, -0.5))
    assert reached() > before


def test_compiled_code_does():
    torch._dynamo.reset()
    function = torch.compile(COMPOSED["margin_ranking_loss"], backend="eager")
    with clampgrad.pin("half"):
        assert slope(function, (0.0,)) == [0.5]


# ---- Threads of torch's own ----------------------------------------------------------------------------

THREADS = """
import os, threading, warnings
import torch
import clampgrad

class Deep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, deeper):
        ctx.deeper = deeper
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        seen.add((threading.get_ident() == here, clampgrad.pin.current()))
        if ctx.deeper:
            with torch.enable_grad():
                y = Deep.apply(torch.ones(1, requires_grad=True), ctx.deeper - 1).sum()
            y.backward()
        return g, None

warnings.simplefilter("ignore")  # TorchScript is deprecated

@torch.jit.script
def forked(x):
    return torch.jit.wait(torch.jit.fork(torch.clamp, x, 0.0, 1.0))

def look():
    Deep.apply(torch.ones(1, requires_grad=True), 100).sum().backward()
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(forked(x), x)[0].item()

here, seen = threading.get_ident(), set()
own = look()
seen.clear()
with clampgrad.pin("half"):
    slope = look()
print(seen == {(True, "half"), (False, None)}, slope == own != 0.5)
seen.clear()
clampgrad.set_pin("half")
slope = look()
print({name for _, name in seen} == {"half"}, slope == 0.5, flush=True)
os._exit(0)  # with no clampgrad too, torch's thread may want the GIL of an interpreter that is gone, and abort
"""


def test_a_block_does_not_hold_where_torch_uses_a_thread_of_its_own(tmp_path):
    """A deep backward and torch.jit.fork do so on a CPU; on a GPU, every backward."""
    (tmp_path / "script.py").write_text(THREADS)  # TorchScript reads it
    assert python(tmp_path / "script.py").split() == ["True"] * 4


# ---- Graphs that are captured -----------------------------------------------------------------------------


class Inside(torch.nn.Module):
    def forward(self, x):
        with clampgrad.pin("straight_through"):
            return torch.clamp(x * 1, 0, 1) * 1


inside = Inside()
CAPTURED = {
    "torch.export": lambda x: torch.export.export(inside, (x,), strict=False).module(),
    "torch.jit.trace": lambda x: torch.jit.trace(inside, (x,), check_trace=False),
    "make_fx": lambda x: make_fx(inside)(x),
    "torch.fx": lambda x: torch.fx.symbolic_trace(inside),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("how", CAPTURED)
def test_a_graph_loses_the_blocks_inside(how):
    says_so = how in ("torch.export", "torch.jit.trace")
    with pytest.warns(UserWarning, match="a graph") if says_so else nullcontext():
        graph = CAPTURED[how](torch.tensor([-1.0, 2.0], requires_grad=True))
    assert (slope(inside), slope(graph)) == (THROUGH, OWN)
    with clampgrad.pin("straight_through"):
        assert slope(graph) == THROUGH
