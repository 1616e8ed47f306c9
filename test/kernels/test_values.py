"""Where no gradient is recorded, our kernels return what ATen's do, to the bit, and whoever looks
on sees ATen's operators. Only a NaN differs: it stays the one that an argument has, where ATen's
kernels of 16 bits make one of their own. So NaNs show whose kernel has run."""

import math
import os
import platform
import sys
from contextlib import contextmanager, nullcontext
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import clampgrad
from oracle import EXTREMA
from testing.cases import slow_after
from testing.processes import run

pytestmark = [
    pytest.mark.compiled("the portable implementation calls ATen"),
    pytest.mark.of_cpus("on other devices ATen's kernels are as fast"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere ATen's kernels run"),
]

SHORT = (torch.float16, torch.bfloat16)
NUMBERS = (*SHORT, torch.float32, torch.float64)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
PATTERNS = torch.arange(-(2**15), 2**15, dtype=torch.int16)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 6.0, 1e-40, -1e-40, 6e-8, math.inf, -math.inf, 3e38, -6.5e4, 0.1)
OF_TWO_TENSORS = (*EXTREMA, "clamp_min", "clamp_max")
SET = torch.backends.cpu.get_cpu_capability()  # without one, ATen's kernels keep NaNs, too
LOWER = {"AVX512": ["avx2", "default"], "AVX2": ["default"]}.get(SET, [])


def every(dtype):
    """All numbers of 16 bits. Of others as many, with the same signs and exponents."""
    if dtype in SHORT:
        return PATTERNS.view(dtype)
    return torch.cat([PATTERNS.view(of) for of in SHORT]).to(dtype)


def special(dtype):
    """Numbers that ATen takes for bounds, without those that would be infinite after rounding."""
    largest = torch.finfo(dtype).max
    return [b for b in SPECIAL if abs(b) <= largest or math.isinf(b)]


def bits(t):
    return t.contiguous().view(BITS[t.element_size()])


def assert_alike(actual, expected):
    """Equal to the bit, but for the payload of NaNs."""
    assert actual.dtype == expected.dtype and actual.stride() == expected.stride()
    numbers = ~expected.isnan()
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(bits(actual)[numbers], bits(expected)[numbers])


@contextmanager
def flushing(on):
    assert torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("flush", [False, True], ids=["", "flushing"])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers(dtype, flush):
    x = every(dtype)
    with flushing(flush):
        for lo, hi in product([None, *special(dtype)], repeat=2):
            if (lo, hi) != (None, None):
                assert_alike(clampgrad.clamp(x, lo, hi), torch.clamp(x, lo, hi))
        for bound in special(dtype):
            for name in ("clamp_min", "clamp_max"):
                assert_alike(getattr(clampgrad, name)(x, bound), getattr(torch, name)(x, bound))
        assert_alike(clampgrad.relu(x), F.relu(x))
        assert_alike(clampgrad.relu6(x), F.relu6(x))
        assert_alike(clampgrad.hardtanh(x, -0.5, 2), F.hardtanh(x, -0.5, 2))


@pytest.mark.parametrize("flush", [False, True], ids=["", "flushing"])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_tensors(dtype, flush):
    """Beside each bound as a Tensor of the same size, of one number, and of another NaN."""
    x = every(dtype)
    bounds = [torch.tensor(b, dtype=dtype) for b in special(dtype)]
    bounds.append(PATTERNS[-1].view(dtype))
    assert bounds[-1].isnan()
    with flushing(flush):
        for bound in bounds:
            for name, b in product(OF_TWO_TENSORS, (bound, bound.expand(x.shape).contiguous())):
                function, torch_function = getattr(clampgrad, name), getattr(torch, name)
                assert_alike(function(x, b), torch_function(x, b))
                if "clamp" not in name:
                    assert_alike(function(b, x), torch_function(b, x))
        for lo, hi in product(bounds[::2], bounds[::3]):
            for a, b in ((lo, hi), (lo.expand(x.shape).contiguous(), hi.expand(x.shape).clone())):
                assert_alike(clampgrad.clamp(x, a, b), torch.clamp(x, a, b))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_which_zero_at_the_end_of_a_row(dtype, threads):
    """ATen takes the last of two equal arguments in vectors, and the first one beyond them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n in [*range(100), 2**15 + 1, 2**16 + 33, 3 * 2**15 + 77]:
            plus, minus = torch.zeros(n, dtype=dtype), -torch.zeros(n, dtype=dtype)
            for name, (x, y) in product(OF_TWO_TENSORS, ((plus, minus), (minus, plus))):
                assert_alike(getattr(clampgrad, name)(x, y), getattr(torch, name)(x, y))
                alone = y[:1].view(()) if n else y
                assert_alike(getattr(clampgrad, name)(x, alone), getattr(torch, name)(x, alone))
            for args in ((plus, minus, minus), (minus, plus, plus), (plus, minus, plus)):
                assert_alike(clampgrad.clamp(*args), torch.clamp(*args))
    finally:
        torch.set_num_threads(before)


def views(x):
    """Tensors of one shape that lie in memory in several ways."""
    yield x
    yield x.mT.contiguous().mT
    yield torch.stack([x, x], -1)[..., 0]
    yield torch.cat([x, x], 1)[:, : x.shape[1]]
    yield x[:, :1].expand(x.shape)
    yield x[:1]
    yield x[:, :1]


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_layouts(dtype):
    generator = torch.Generator().manual_seed(0)
    few = torch.tensor([0.0, -0.0, 1, -1, 2, math.nan, math.inf], dtype=dtype)
    for shape in ((3, 5), (40, 100), (70, 33), (2, 2100)):
        x, y = (few[torch.randint(len(few), shape, generator=generator)] for _ in range(2))
        for a in views(x):
            assert_alike(clampgrad.clamp(a, 0, 1), torch.clamp(a, 0, 1))
            for b in views(y):
                for name in OF_TWO_TENSORS:
                    assert_alike(getattr(clampgrad, name)(a, b), getattr(torch, name)(a, b))
                assert_alike(clampgrad.clamp(a, b, y), torch.clamp(a, b, y))


# ---- Whose kernel runs, and who sees it ----------------------------------------------------------

NAN = torch.tensor([0x7F81, 0x7FC1], dtype=torch.int16).repeat(64).view(torch.bfloat16)
LO, HI = torch.zeros(128, dtype=torch.bfloat16), torch.ones(128, dtype=torch.bfloat16)
CALLS = {
    "clamp": lambda of, x: of.clamp(x, 0, 1),
    "clamp_": lambda of, x: of.clamp_(x.clone(), 0, 1),
    "clamp out": lambda of, x: of.clamp(x, 0, 1, out=torch.empty_like(x)),
    "clamp_min": lambda of, x: of.clamp_min(x, 0),
    "clamp_max_": lambda of, x: of.clamp_max_(x.clone(), 0),
    "clamp with Tensors": lambda of, x: of.clamp(x, LO, HI),
    "clamp_ with Tensors": lambda of, x: of.clamp_(x.clone(), LO, HI),
    "clamp with Tensors, out": lambda of, x: of.clamp(x, LO, HI, out=torch.empty_like(x)),
    "clamp_min with a Tensor": lambda of, x: of.clamp_min(x, LO),
    "maximum": lambda of, x: of.maximum(x, LO),
    "minimum": lambda of, x: of.minimum(x, HI),
    "fmax": lambda of, x: of.fmax(x, NAN),
    "fmin out": lambda of, x: of.fmin(x, NAN, out=torch.empty_like(x)),
}


def is_ours(call, of=clampgrad, x=NAN):
    """Whether each NaN is still the one that it was, or for fmax and fmin quiet."""
    quiet = bits(x) | 0x40
    y = bits(CALLS[call](of, x))
    return torch.equal(y, bits(x)) or ("fm" in call and torch.equal(y, quiet))


@pytest.mark.parametrize("call", CALLS)
def test_our_kernel_runs(call):
    assert is_ours(call)
    assert not is_ours(call, torch) or SET == "DEFAULT"
    with torch.no_grad():
        assert is_ours(call, x=NAN.clone().requires_grad_())
    with torch.inference_mode():
        assert is_ours(call)
        assert CALLS[call](clampgrad, NAN).is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert is_ours(call)


@pytest.mark.parametrize("call", [c for c in CALLS if "out" not in c])
def test_a_pinned_program_gains_it_too(call):
    with clampgrad.pin("inclusive"):
        assert is_ours(call, torch)
        with torch.no_grad():
            assert is_ours(call, torch, NAN.clone().requires_grad_())
    assert not is_ours(call, torch) or SET == "DEFAULT"


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("of", [clampgrad, torch], ids=["called", "pinned"])
@pytest.mark.parametrize("call", [c for c in CALLS if "out" not in c])
def test_who_looks_on_sees_the_operator_of_aten(call, of):
    x = torch.ones_like(NAN)

    def seen(of):
        with Seen() as mode:
            CALLS[call](of, x)
        with torch.profiler.profile() as profile:
            CALLS[call](of, x)
        return mode.operators, [e.name for e in profile.events() if "::" in e.name]

    expected = seen(torch)
    with clampgrad.pin("joint") if of is torch else nullcontext():
        assert seen(of) == expected
    assert "aten::" in str(expected)


def test_what_is_traced_calls_aten():
    x = torch.ones_like(NAN)
    traced = torch.jit.trace(lambda x: clampgrad.clamp(x, 0, 1), (x,))
    assert "clamp" in str(traced.graph)
    batched = torch.func.vmap(lambda x: clampgrad.clamp(x, 0, 1))(x.view(2, -1))
    assert torch.equal(batched.view(-1), x)


# ---- What is written -----------------------------------------------------------------------------


def test_a_write_counts():
    x = torch.ones(70, dtype=torch.bfloat16)
    for call in (
        lambda: clampgrad.clamp_(x, 0, 1),
        lambda: clampgrad.clamp_(x, LO[:70], HI[:70]),
        lambda: clampgrad.clamp_min_(x, 0),
        lambda: clampgrad.maximum(x, LO[:70], out=x),
        lambda: clampgrad.clamp(LO[:70], 0, 1, out=x),
    ):
        before = x._version
        assert call() is x
        assert x._version == before + 1
    with torch.inference_mode():
        y = torch.ones(70, dtype=torch.bfloat16)
        assert clampgrad.clamp_(y, 0, 1) is y
        before = x._version
        clampgrad.clamp_(x, 0, 1)
        assert x._version == before + 1
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        clampgrad.clamp_(y, 0, 1)


def test_what_backward_needs_is_not_overwritten_in_silence():
    w = torch.ones(70, dtype=torch.bfloat16, requires_grad=True)
    x = torch.full((70,), 2.0, dtype=torch.bfloat16)
    y = w * x
    clampgrad.clamp_(x, 0, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def raised(call):
    with pytest.raises((RuntimeError, ValueError)) as error:
        call()
    return str(error.value)


def test_errors_are_those_of_aten():
    x = torch.ones(8, 8, dtype=torch.bfloat16)
    leaf = x.clone().requires_grad_()
    calls = [
        lambda of: of.maximum(x, x[:, :3]),
        lambda of: of.clamp(x, x[:3], x),
        lambda of: of.clamp_min_(x[:, :1], x),
        lambda of: of.clamp_(x[:1].expand(8, 8), 0, 1),
        lambda of: of.clamp_(x.view(-1)[:8], x.view(-1)[4:12]),
        lambda of: of.maximum(x[0], x[1], out=x.view(-1)[4:12]),
        lambda of: of.maximum(x, x, out=torch.ones(8, 8, dtype=torch.int64)),
        lambda of: of.maximum(x, x, out=leaf),
        lambda of: of.clamp(x),
        lambda of: of.clamp(x, 1j, 2),
        lambda of: of.clamp_min(x, 1e39),
    ]
    for call in calls:
        assert raised(lambda: call(clampgrad)) == raised(lambda: call(torch))


def test_out_is_resized_as_by_aten():
    x = torch.ones(8, 8, dtype=torch.bfloat16)
    for of in (clampgrad, torch):
        out = torch.empty(0, dtype=torch.bfloat16)
        assert of.clamp(x, 0, 1, out=out) is out and out.shape == x.shape
        wide = torch.empty(8, 8)
        assert of.maximum(x, x, out=wide) is wide and torch.equal(wide, x.float())


@pytest.mark.thorough
@pytest.mark.skipif("ATEN_CPU_CAPABILITY" in os.environ, reason="it runs this very file")
@pytest.mark.parametrize("lower", slow_after(1, LOWER))
def test_lower_instruction_sets(lower):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = run(*command, env={**os.environ, "ATEN_CPU_CAPABILITY": lower})
    assert done.returncode == 0, done.stdout[-3000:]
