"""No cache serves code that was compiled under another pin. test_pin_calls.py checks that another
pin recompiles. And contexts of compilers beyond those of test/matrix, and saved models."""

import gc
from functools import partial
from types import FunctionType

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch._dynamo import compiled_autograd
from torch.func import grad, hessian, jacfwd, jvp, vmap

import clampgrad
from clampgrad._torch.compiler import codes_of, with_inner
from common import HALF, OWN, RELEASE, SLOPE, assert_same, slope, tied

pytestmark = pytest.mark.thorough


# Inductor keeps the same if it calls operators and has no C++ to compile.
START = (
    SLOPE
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
for pin, expected in (("half", HALF), (None, own), ("inclusive", ALL), ("half", HALF)):
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
        assert both == (HALF, HALF), both
    else:
        assert "before the first pin" in both[0], both
        assert "clampgrad.pin.current() == None" in both[1], both
    with clampgrad.pin("inclusive"):
        assert all("clampgrad.pin" in found(f) for f in (early, load()))
    assert found(load()) == (own if pin == "none" else found(load())) != HALF
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
    return tied(40, nan=False).clamp(-2, 2).requires_grad_()


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
@pytest.mark.parametrize("found", [autograd_of_second_order, regions])
def test_a_pinned_clamp_in_compiled_code_is_ours(found, pin, backend):
    torchs = partial(torch.clamp, min=0, max=1)
    expected = found(partial(clampgrad.clamp, min=0, max=1, gradient=pin), backend)
    assert not torch.equal(found(torchs, backend), expected), "no value is at a bound"
    with clampgrad.pin(pin):
        assert_same(found(torchs, backend), expected)


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
    assert slope(loaded) == OWN
    with clampgrad.pin("half"):
        assert slope(loaded) == HALF
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
            found = torch.compile(FORWARD[f], backend=backend)(x.clone().requires_grad_(recorded))
            assert_same(found.detach(), expected)


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
    ours = [c for c in seen if c and "/clampgrad/_implementation/" in c.co_filename]
    assert ours == []


@pytest.mark.skipif(clampgrad.implementation == "compiled", reason="its kernels are C++")
def test_no_function_that_a_kernel_may_call_is_left_out():
    rooms = "clampgrad._contract", "clampgrad._torch", "clampgrad._implementation"
    left_to_callers = {*map(id, codes_of(rooms))}
    functions = [f for f in gc.get_objects() if type(f) is FunctionType]
    ours = [f for f in functions if str(f.__globals__.get("__name__")).startswith(rooms)]
    ours = [f for f in ours if "COMPILED_BY_ITSELF" not in f.__globals__]
    codes = [*with_inner(f.__code__ for f in ours)]
    assert len(codes) > 100
    assert [code for code in codes if id(code) not in left_to_callers] == []
