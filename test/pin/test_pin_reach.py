"""Where torch clamps by itself: a compiled pin reaches it, a portable one refuses it or is partial."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import clampgrad
from common import OWN, THROUGH, python, slope

pytestmark = pytest.mark.slow

COMPILED = clampgrad.implementation == "compiled"


def nodes(result):
    """The names of the nodes that autograd recorded for a result."""
    found, todo = set(), [t.grad_fn for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [following for following, _ in node.next_functions]
    return {node.name() for node in found}


FAMILY = ("Clamp", "Maximum", "Minimum", "Fmax", "Fmin")
OURS = "clamp_min", "clamp_max", "clamp", "maximum", "minimum", "max", "min", "fmax", "fmin"
# masked.normalize calls torch.maximum as any program in Python does.
COMPOSED = {
    "corrcoef": lambda x: torch.corrcoef(torch.stack([x, -x, x * x])),
    "nn.functional.normalize": lambda x: F.normalize(x, eps=1.0, dim=0),
    "nn.functional.margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x * 0, x * 0 - 1),
    "nn.functional.hinge_embedding_loss": lambda x: F.hinge_embedding_loss(x, x.detach() * 0 - 1),
    "nn.functional.cosine_embedding_loss": lambda x: F.cosine_embedding_loss(
        x[None], x[None] * 0 + 1, torch.tensor([-1.0]), margin=-1.0
    ),
    "nn.functional.triplet_margin_loss": lambda x: F.triplet_margin_loss(x, x * 0, x * 2),
    "nn.functional.triplet_margin_with_distance_loss": lambda x: (
        F.triplet_margin_with_distance_loss(x[None], x[None] * 0, x[None] * 2)
    ),
    "masked.normalize": lambda x: torch.masked.normalize(x, 2.0, 0, eps=1.0),
}


def samples(info):
    try:
        yield from info.sample_inputs("cpu", torch.float64, requires_grad=True)
    except Exception:  # it has none of this dtype
        return


def clamps_inside(info):
    for sample in samples(info):
        try:
            result = info.op(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # noqa: S112 - a sample that this build cannot run
            continue
        if any(name.startswith(FAMILY) for name in nodes(result)):
            return True
    return False


@pytest.mark.filterwarnings("ignore")  # what torch says of its samples
def test_no_other_function_of_torch_clamps_inside():
    found = {info.name for info in op_db if info.name not in OURS and clamps_inside(info)}
    assert found and found <= set(COMPOSED), (
        "put it into COMPOSED of clampgrad/_implementation/portable/pinned_calls.py"
    )


def slope_of(name):
    return slope(COMPOSED[name], (0.5, 0.0, -0.5))


def reached():
    return sum(clampgrad._implementation.pin_reached().values())


@pytest.mark.parametrize("name", COMPOSED)
def test_what_a_pin_does_there(name):
    own, before = slope_of(name), reached()
    if COMPILED or name.startswith("masked"):
        with clampgrad.pin("half"):
            slope_of(name)
        assert reached() > before
        return
    with clampgrad.pin("half"):
        with pytest.raises(RuntimeError, match=f"inside {name.split('.')[-1]}"):
            slope_of(name)
        with torch.no_grad():
            COMPOSED[name](torch.ones(3))
        with clampgrad.pin(None):
            assert slope_of(name) == own
    with clampgrad.pin("half", partial=True):
        assert slope_of(name) == own and reached() == before
    # The earlier block left nothing.
    with clampgrad.pin("half"), pytest.raises(RuntimeError, match="partial=True"):
        slope_of(name)


def test_compiled_code_is_refused_alike():
    torch._dynamo.reset()
    function = torch.compile(COMPOSED["nn.functional.margin_ranking_loss"], backend="eager")
    with clampgrad.pin("half", partial=True):
        slope(function)
    with clampgrad.pin("half"):
        if COMPILED:
            assert slope(function, (0.0,)) == [0.5]
        else:
            with pytest.raises(RuntimeError, match="margin_ranking_loss"):
                slope(function)


# ---- A whole process -------------------------------------------------------------------------------------

# How a pin is asked for, and what is added to ask for it in part.
WAYS = {
    "enable": ("clampgrad.pin('half'{}).enable()", ", partial=True"),
    "set_pin": ("clampgrad.set_pin('half'{})", ", partial=True"),
    "run": ("-m clampgrad run --gradient half{}", " --partial"),
    "the variable": ("half{}", ", partial"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_process(way, program, tmp_path):
    """Whole where everything is reached; otherwise an error, unless it is asked for in part."""
    pin, part = WAYS[way]
    for partial in (False, True):
        asked = pin.format(part * partial)
        line = asked if way in ("enable", "set_pin") else ""
        show = f"import torch, clampgrad\n{line}\nprint(clampgrad.pin.current())"
        (tmp_path / "show.py").write_text(show)
        words = asked.split() if way == "run" else []
        variables = {"CLAMPGRAD_GRADIENT": asked} if way == "the variable" else {}
        done = program(*words, "show.py", **variables)
        if COMPILED:
            assert (done.stdout, done.stderr) == ("half\n", "")
        elif partial:
            assert (done.stdout, done.stderr) == ("half, partial\n", "")
        else:
            assert done.returncode and "cannot pin a whole process" in done.stderr
            assert all(name in done.stderr for name in ("normalize", "C++", "--partial"))


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
clampgrad.set_pin("half", partial=True)
slope = look()
print({name for _, name in seen} == {"half"}, slope == 0.5, flush=True)
os._exit(0)  # with no clampgrad too, torch's thread may want the GIL of an interpreter that is gone, and abort
"""


@pytest.mark.compiled("a portable pin of the process is not that of threads of C++ either")
def test_a_block_does_not_hold_where_torch_uses_a_thread_of_its_own(tmp_path):
    """A deep backward and torch.jit.fork do so on a CPU; on a GPU, every backward."""
    (tmp_path / "script.py").write_text(THREADS)  # TorchScript reads it
    assert python(tmp_path / "script.py").split() == ["True"] * 4


# ---- Graphs that are captured -----------------------------------------------------------------------------


def inside(x):
    with clampgrad.pin("straight_through"):
        return torch.clamp(x * 1, 0, 1) * 1


class Inside(torch.nn.Module):
    def forward(self, x):
        return inside(x)


CAPTURED = {
    "torch.export": lambda x: torch.export.export(Inside(), (x,), strict=False).module(),
    "torch.jit.trace": lambda x: torch.jit.trace(inside, (x,), check_trace=False),
    "make_fx": lambda x: make_fx(inside)(x),
    "torch.fx": lambda x: torch.fx.symbolic_trace(inside),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.compiled("a graph that is captured under the portable pin keeps it")
@pytest.mark.parametrize("how", CAPTURED)
def test_a_graph_loses_the_blocks_inside(how):
    says_so = how in ("torch.export", "torch.jit.trace")
    with pytest.warns(UserWarning, match="a graph") if says_so else nullcontext():
        graph = CAPTURED[how](torch.tensor([-1.0, 2.0], requires_grad=True))
    assert (slope(inside), slope(graph)) == (THROUGH, OWN)
    with clampgrad.pin("straight_through"):
        assert slope(graph) == THROUGH
