"""No cache serves code that was compiled under another pin. test_pin_calls.py checks that another
pin recompiles. And contexts of compilers beyond those of testing/matrix, and saved models."""

from functools import partial

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch._dynamo import compiled_autograd
from torch.func import grad, hessian, jacfwd, jvp, vmap

import clampgrad
from testing.comparing import assert_same, random_with_ties
from testing.processes import python
from testing.releases import RELEASE
from testing.slopes import HALF_SLOPES, SLOPE_SCRIPT, STOCK_SLOPES, slope

pytestmark = pytest.mark.thorough


# Inductor keeps the same if it calls operators and has no C++ to compile.
START = (
    SLOPE_SCRIPT
    + """
torch._inductor.config.fallback_by_default = True
def found(f):
    try:
        return slope(f)
    except RuntimeError as error:
        return "refused" if "Detected recompile" in str(error) else str(error)
"""
)
SCRIPT = """
early = torch.compile(clamp, backend="aot_eager")
own = slope(early)          # compiled before there is any pin
import clampgrad
for pin, expected in (("half", HALF_SLOPES), (None, own), ("inclusive", ALL), ("half", HALF_SLOPES)):
    with clampgrad.pin(pin):
        assert slope(early) == expected, (pin, slope(early))
        torch._dynamo.reset()
        inductor = torch.compile(clamp)
        assert slope(inductor) == expected, (pin, slope(inductor))
counters = torch._dynamo.utils.counters["aot_autograd"]
print(counters["autograd_cache_hit"], counters["autograd_cache_miss"])
"""


def cache(folder):
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}


def test_caches_on_disk_and_code_compiled_before_the_first_pin(script, tmp_path):
    """Each pin, and no pin, has its own entry; the last compilation, under the first
    pin again, finds its entry."""
    assert script(START + SCRIPT, cwd=tmp_path, **cache(tmp_path))[0].split() == ["1", "3"]


AHEAD = """
import contextlib
import clampgrad
# In 2.11 it is behind a switch, and saves what Inductor compiled alone.
backend = "aot_eager" if torch._dynamo.config.enable_aot_compile else "inductor"
torch._dynamo.config.enable_aot_compile = True
def pinned(name): return contextlib.nullcontext() if name == "none" else clampgrad.pin(name)
def load(): return torch.compiler.load_compiled_function(open(path, "rb"))
how, pin, path = sys.argv[1:]
if how == "save":
    example = ((torch.zeros(2, requires_grad=True),), {})
    with pinned(pin):
        compiled = torch.compile(clamp, fullgraph=True, backend=backend).aot_compile(example)
    compiled.save_compiled_function(path)
else:
    own = slope(clamp)
    early = load()  # before the first pin of the process
    if pin == "none":
        assert found(early) == own, found(early)
    with clampgrad.pin("half"):
        both = found(early), found(load())
    if pin == "half":
        assert both == (HALF_SLOPES, HALF_SLOPES), both
    else:
        assert "before the first pin" in both[0], both
        assert "clampgrad.pin.current() == None" in both[1], both
    with clampgrad.pin("inclusive"):
        assert all("clampgrad.pin" in found(f) for f in (early, load()))
    assert found(load()) == (own if pin == "none" else found(load())) != HALF_SLOPES
"""


@pytest.mark.parametrize("pin", ["half", pytest.param("none", marks=pytest.mark.slow)])
def test_code_compiled_ahead_of_time_is_of_its_pin_wherever_it_is_loaded(script, tmp_path, pin):
    for how in ("save", "load"):
        script(START + AHEAD, how, pin, "saved.bin", cwd=tmp_path)


PRECOMPILED = """
import clampgrad
torch._dynamo.config.caching_precompile = True
def inner(x): return torch.clamp(x, 0, 1) * 1  # compiled apart
@torch._dynamo.disable(recursive=False)
def between(x): return inner(x)
def f(x): return between(x * 1)
def served(): return [found(torch.compile(function)) for function in (inner, clamp)]
own = slope(f)
if sys.argv[1] == "save":
    slope(torch.compile(f))
    with clampgrad.pin("half"):
        slope(torch.compile(clamp))
    torch.compiler.save_cache_artifacts()
    sys.exit()
torch.compiler.set_stance("fail_on_recompile")
torch.compile(f)  # installs what was saved of it, inner among that, before the first pin
with clampgrad.pin("half"):
    assert served() == ["refused", [0.5, 0]], served()
    torch.compile(f)
    assert served() == ["refused", [0.5, 0]], served()
with clampgrad.pin("inclusive"):
    assert served() == ["refused", "refused"], served()
assert served() == [own, "refused"], served()
"""


@pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "caching_precompile") or RELEASE >= (2, 14),
    reason="older releases cannot do it, 2.15 fails to save what is compiled apart: "
    '"expected OutputCode"',
)
def test_code_that_caching_precompile_loads_is_of_its_pin(script, tmp_path):
    """A function saved without a pin and one saved under one: each is
    served where its pin holds."""
    for how in ("save", "load"):
        script(START + PRECOMPILED, how, cwd=tmp_path, **cache(tmp_path))


# ---- A pinned clamp in compiled code is the operator that names its convention -------------------


def points():
    return random_with_ties(40, nan=False).clamp(-2, 2).requires_grad_()


def autograd_of_second_order(clamp, backend):
    x = points()
    (slope,) = torch.autograd.grad((clamp(x * x) * x).sum(), x, create_graph=True)
    y = slope.square().sum()
    with compiled_autograd._enable(torch.compile(backend=backend)):
        y.backward()
    return x.grad


def regions(clamp, backend):
    """A region that is compiled once, and called twice in a graph, with a parameter."""
    x, w = points(), points()
    region = torch.compiler.nested_compile_region(lambda x: clamp(x * w) * x)
    f = torch.compile(lambda x: region(region(x)), backend=backend, fullgraph=True)
    return torch.cat(torch.autograd.grad(f(x).sum(), (x, w)))


@pytest.mark.skipif(RELEASE < (2, 11), reason="some cannot do all of this yet")
@pytest.mark.parametrize("pin", ["half", "straight_through"])
@pytest.mark.parametrize("differentiate", [autograd_of_second_order, regions])
def test_a_pinned_clamp_in_compiled_code_is_ours(differentiate, pin, backend):
    torchs = partial(torch.clamp, min=0, max=1)
    expected = differentiate(partial(clampgrad.clamp, min=0, max=1, gradient=pin), backend)
    assert not torch.equal(differentiate(torchs, backend), expected), "no value is at a bound"
    with clampgrad.pin(pin):
        assert_same(differentiate(torchs, backend), expected)


class Clamps(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, 0, 1)


@pytest.mark.parametrize("strict", [False, True])
def test_a_saved_model_has_the_pin_under_which_it_runs(strict, tmp_path):
    model = torch.nn.Hardtanh(0, 1)  # has a formula of its own
    exported = torch.export.export(Clamps(), (torch.zeros(2),), strict=strict)
    with clampgrad.pin("half"):
        torch.export.save(exported, tmp_path / "model.pt2")
        torch.save(model, tmp_path / "model.pt")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert slope(loaded) == STOCK_SLOPES
    with clampgrad.pin("half"):
        assert slope(loaded) == HALF_SLOPES
        assert slope(torch.load(tmp_path / "model.pt", weights_only=False)) == [0, 0]


# ---- Forward mode that compiled or exported code opens -------------------------------------------


def tangent(f, x):
    return jvp(f, (x,), (torch.ones_like(x),))[1]


def in_a_level(f, x):
    with fwad.dual_level():
        return fwad.unpack_dual(f(fwad.make_dual(x, torch.ones_like(x)))).tangent


def squared(f):
    return lambda x: (f(x) ** 2).sum()


ZEROS = torch.zeros(4)
ONES = torch.ones(4)


FORWARD = {
    "jvp": lambda x: tangent(clamp, x),
    "jacfwd": lambda x: jacfwd(clamp)(x),
    "dual_level": lambda x: in_a_level(clamp, x),
    "vmap of jvp": lambda x: vmap(partial(tangent, clamp))(x[:, None]),
    "jvp of vmap": lambda x: tangent(vmap(clamp), x),
    "jvp of grad": lambda x: tangent(grad(squared(clamp)), x),
    "hessian": lambda x: hessian(squared(clamp))(x),
    "clamp_": lambda x: tangent(lambda x: x.clone().clamp_(0, 1), x),
    "clamp_ in a dual_level": lambda x: in_a_level(lambda x: x.clone().clamp_(0, 1), x),
    "Tensors": lambda x: tangent(lambda x: torch.clamp(x, ZEROS, ONES), x),
    "maximum": lambda x: tangent(lambda x: torch.maximum(x, ZEROS), x),
    "fmax": lambda x: tangent(lambda x: torch.fmax(x, ZEROS), x),
}


def clamp(x):
    return torch.clamp(x, 0, 1)


class Calls(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.forward = f


@pytest.mark.parametrize("pin", ["half", "inclusive", "straight_through"])
@pytest.mark.parametrize("f", FORWARD)
def test_forward_mode_inside_compiled_code(f, pin):
    """Where a graph opens the level, only torch's C++ hears of it."""
    x = torch.tensor([0.0, 0.5, 1.0, 2.0])
    with clampgrad.pin(pin):
        expected = FORWARD[f](x)
        for backend, recorded in (("eager", False), ("aot_eager", False), ("aot_eager", True)):
            if recorded and "dual_level" not in f:
                continue  # torch 2.13 itself crashes in a jvp of grad
            torch._dynamo.reset()
            actual = torch.compile(FORWARD[f], backend=backend)(x.clone().requires_grad_(recorded))
            assert_same(actual.detach(), expected)


@pytest.mark.skipif(RELEASE < (2, 13), reason="torch.export opens no level yet")
@pytest.mark.parametrize("f", ["jvp", "dual_level", "jvp of vmap", "clamp_", "Tensors", "maximum"])
def test_forward_mode_inside_exported_code(f):
    x = torch.tensor([0.0, 0.5, 1.0, 2.0])
    with clampgrad.pin("half"):
        exported = torch.export.export(Calls(FORWARD[f]), (x,), strict=False).module()
        assert_same(exported(x), FORWARD[f](x))


# ---- Frames that Dynamo leaves uncompiled --------------------------------------------------------


def breaks_in_a_loop(x):
    y = x * 1
    for _ in range(2):
        if y.sum().item() < 100:
            y.clamp_(0, 1)
    return y


def breaks_in_try(x):
    y = x * 1
    try:
        y.clamp_(0, 1)
        torch._dynamo.graph_break()
        y.clamp_max_(2)
    finally:
        torch._dynamo.graph_break()
    return y


@pytest.mark.parametrize("pin", ["half", "straight_through"])
@pytest.mark.parametrize("f", [breaks_in_a_loop, breaks_in_try])
def test_nothing_of_a_kernel_is_compiled_by_itself(f, pin):
    with clampgrad.pin(pin):
        assert slope(torch.compile(f, backend="aot_eager")) == slope(f)
    seen = (code() for code in torch._dynamo.convert_frame.input_codes.seen)
    assert not [c for c in seen if c and "/clampgrad/_implementation/" in c.co_filename]


KERNELS_RUN = """
import sys
from pathlib import Path

import torch
import torch._dynamo.eval_frame as eval_frame
from functorch.compile import aot_function, nop
from torch.func import grad, jvp, vmap

skip_code, left_to_callers = eval_frame.skip_code, set()
eval_frame.skip_code = lambda code: left_to_callers.add(code) or skip_code(code)

import clampgrad

package, entered = str(Path(clampgrad.__file__).parent), set()


def watched(f, *args):
    def look(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            entered.add(frame.f_code)

    sys.setprofile(look)
    try:
        return f(*args)
    finally:
        sys.setprofile(None)


zeros, ones = torch.zeros_like, torch.ones_like
own = torch.ops.clampgrad
CALLS = [
    lambda x: torch.clamp(x, 0, 1),
    lambda x: x.clone().clamp_(0, 1),
    lambda x: torch.clamp_max(x, True),
    lambda x: torch.clamp(x, zeros(x), ones(x)),
    lambda x: x.clone().clamp_(zeros(x), ones(x)),
    lambda x: torch.maximum(x, zeros(x).double()),
    lambda x: own.clamp(x, 0, 1, gradient="half"),
    lambda x: own.clamp_(x.clone(), 0, 1, gradient="with_grad"),
    lambda x: own.clamp_min_mingrad(x, zeros(x)),
    lambda x: own.fmax(x, zeros(x), gradient="half"),
]
IN = [
    lambda f, x: f(x).sum().backward(),
    lambda f, x: torch.autograd.grad(f(x), x, ones(x), create_graph=True),
    lambda f, x: grad(lambda x: f(x).sum())(x),
    lambda f, x: vmap(f)(x.expand(2, 3)),
    lambda f, x: jvp(f, (x,), (ones(x),)),
    lambda f, x: torch.autograd.grad(f(x), x, torch.eye(3), is_grads_batched=True),
    lambda f, x: aot_function(f, nop)(x).sum().backward(),
    lambda f, x: torch.jit.trace(f, x),
]
for pin in ("half", "restoring"):
    for f in CALLS:
        for run in IN:
            with clampgrad.pin(pin):
                try:
                    watched(run, f, torch.tensor([0.0, 0.5, 2.0], requires_grad=True))
                except (NotImplementedError, RuntimeError):  # no tangent, or no trace
                    pass
print(len(entered), *sorted(f"{c.co_filename}: {c.co_qualname}" for c in entered - left_to_callers))
"""


@pytest.mark.skipif(clampgrad.implementation == "compiled", reason="its kernels are C++")
def test_what_runs_in_a_kernel_is_left_to_its_callers(tmp_path):
    """By what was seen to run, not by what is defined."""
    script = tmp_path / "script.py"
    script.write_text(KERNELS_RUN)
    seen, *compiled_by_itself = python(script).splitlines()[-1].split()
    assert int(seen) > 100
    assert compiled_by_itself == []


@pytest.mark.of_cpus("no trace follows a backward in another thread, torch's own neither")
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("pin", ["min_norm", "inclusive", "joint", "half"])
def test_a_gradient_that_no_trace_holds(pin):
    """What backward needs is made inside an operator, and a trace could only keep it as a constant.
    Without backward, a trace has torch's own operator."""
    x = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
    with clampgrad.pin(pin):
        with pytest.raises(RuntimeError, match="constant"):
            torch.jit.trace(slopes, x, check_trace=False)
        traced = torch.jit.trace(clamped, x)
    assert [node.kind() for node in traced.graph.nodes()].count("aten::clamp") == 1


def clamped(x):
    return torch.clamp(x, 0, 1)


def slopes(x):
    return torch.autograd.grad(clamped(x * 1).sum(), x)[0]


def test_later_pins_drop_no_compiled_code():
    """The first pin of the process does."""
    graphs = []
    compiled = torch.compile(lambda x: x + 1, backend=lambda g, _: graphs.append(g) or g.forward)
    for gradient in (None, "half", "inclusive"):
        with clampgrad.pin(gradient):
            pass
        compiled(torch.ones(1))
    assert len(graphs) == 1
