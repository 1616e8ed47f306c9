"""The fused kernels do what the composed path does: any length, layout, offset, instruction set."""

import os
import platform
import re
import shutil
import sys
from functools import partial

import pytest
import torch

import clampgrad
from oracle import CLAMPS, EXACT, PSEUDO, TABLE
from testing.cases import slow_after
from testing.comparing import DTYPES, assert_same, eager, seeded
from testing.processes import library, run

pytestmark = pytest.mark.compiled(
    "it looks at kernels and nodes that the portable implementation does not have"
)

# Ties, both zeros, numbers that 16 bits cannot hold exactly, infinities and NaN.
VALUES = torch.tensor(
    [0, -0.0, 1, 1, 2, -3, 0.1, 6, 6e-8, 1e30, torch.inf, -torch.inf, torch.nan],
    dtype=torch.float64,
)
CALLS = [
    (name, len(operator["arguments"]), convention)
    for name, operator in TABLE["operators"].items()
    for convention in EXACT + PSEUDO * (name in CLAMPS)
]


def drawn(shape, generator, dtype):
    picks = seeded(torch.randint, len(VALUES), shape, generator=generator)
    return VALUES[picks].to(dtype)


def laid_out(shape, generator, dtype):
    """A tensor of this shape at an odd offset: its dimensions in any order, some with steps."""

    def some(n):
        return int(torch.randint(n, (), generator=generator, device="cpu"))

    order = torch.randperm(len(shape), generator=generator, device="cpu").tolist()
    steps = [1 + some(2) * (some(3) == 0) for _ in shape]
    sizes = [shape[d] * steps[d] for d in order]
    offset = some(5)
    memory = drawn((offset + torch.Size(sizes).numel(),), generator, dtype)
    back = [order.index(d) for d in range(len(shape))]
    whole = memory[offset:].view(sizes).permute(back)
    return whole[tuple(slice(None, None, step) for step in steps)]


def agree(f, args, g):
    for fused, composed in zip(eager(f, args, g), torch.func.vjp(f, *args)[1](g), strict=True):
        assert_same(fused, composed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, count, convention", CALLS)
def test_tensor_kernels_match_composed_path(name, count, convention, dtype):
    generator = torch.Generator().manual_seed(0)

    f = partial(getattr(clampgrad, name), gradient=convention)
    for shape in [(0,), (1,), (63,), (64,), (65,), (200,), (3, 5, 7), (2, 3, 4, 5)]:
        args = [laid_out(shape, generator, dtype) for _ in range(count)]
        agree(f, args, laid_out(shape, generator, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", EXACT + PSEUDO)
@pytest.mark.parametrize("bounds", [(0, 6), (0.1, None), (None, 1), (1, 1), (6, 0)], ids=str)
def test_number_kernels_match_composed_path(bounds, convention, dtype):
    generator = torch.Generator().manual_seed(0)

    def f(x):
        return clampgrad.clamp(x, *bounds, gradient=convention)

    for shape in [*((n,) for n in range(0, 200, 7)), (3, 5, 7), (2, 3, 4, 5), (4, 1, 33)]:
        agree(f, [laid_out(shape, generator, dtype)], laid_out(shape, generator, dtype))


# What repeats is less than a word, some words, no whole number of words, or inner dimensions.
BROADCAST = {
    (40, 100): [(), (100,), (1, 100)],
    (2500,): [(1,)],
    (3000, 3): [(3,)],
    (7, 33, 64): [(64,), (33, 64)],
    (5, 1, 3000): [(3000,)],
    (4, 8, 16, 16): [(8, 1, 1)],
    (100, 100): [(100, 1)],
    (3, 50, 40): [(50, 1)],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, count, convention", CALLS)
def test_what_is_broadcast(name, count, convention, dtype):
    """A bound, and the gradient of a sum. Few ones, so that sums are exact in 16 bits too."""
    generator = torch.Generator().manual_seed(0)
    few = partial(seeded, torch.randint, -2, 3, generator=generator)
    function = getattr(clampgrad, name)
    for shape, bound in ((shape, bound) for shape, bounds in BROADCAST.items() for bound in bounds):
        x, *others = few(shape).to(dtype), *(few(bound).to(dtype) for _ in range(count - 1))
        mask = seeded(torch.rand, shape, generator=generator) < 16 / x.numel()
        for g in (6 * mask.to(dtype), torch.tensor(0.75, dtype=dtype).expand(shape)):
            inputs = [x, *others] if g.is_contiguous() else [x]

            def f(*args):
                return function(*args, *others[len(args) - 1 :], gradient=convention)

            agree(f, inputs, g)
            if x.dim() == 4:
                last = x.contiguous(memory_format=torch.channels_last)
                agree(f, [last, *inputs[1:]], g)


def copied(f):
    """How many elements a call copies."""
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], record_shapes=True) as profile:
        f()
    copies = [e.input_shapes[0] for e in profile.events() if e.name == "aten::copy_"]
    return sum(torch.Size(shape).numel() for shape in copies)


@pytest.mark.of_kernels("compositions broadcast by torch's operators")
def test_nothing_that_is_broadcast_is_copied():
    n = 2**18
    x, row = torch.randn(n // 64, 64, requires_grad=True), torch.randn(64)
    assert 0 < copied(lambda: clampgrad.maximum(x, row)) < n / 100
    assert copied(lambda: clampgrad.maximum(x, row[:1])) < n / 100
    y = clampgrad.maximum(x, row).sum()
    assert copied(lambda: torch.autograd.grad(y, x)) < n / 100
    # An input that repeats along the last dimension is copied.
    assert copied(lambda: clampgrad.maximum(x, x.detach()[:, :1])) >= n


MACHINE = platform.machine()
OBJDUMP = shutil.which(f"{MACHINE}-linux-gnu-objdump") or shutil.which("objdump")


def disassembled():
    done = run(OBJDUMP, "-d", "--no-show-raw-insn", library())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def instructions():
    """The disassembled library, on x86-64."""
    if not OBJDUMP or MACHINE != "x86_64" or "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("needs objdump, and loops for AVX-512 without a sanitizer")
    code = disassembled()
    assert re.search(r"\tkmov[bwdq]\s", code)
    return code


NOT_IN_AVX512 = {
    # vpmovw2m is what Clang makes of the signs of 16-bit numbers.
    "a mask that becomes a vector of lanes and a mask again": r"\tvpmov(?:m2[bwdq]|[bdq]2m)\s",
    # If the bits of a gradient are not in the cache, its elements are fetched all the same. Data on
    # the stack, and constants, are always there.
    "a load that waits for a mask": (
        r"\tv\w+\s[^\n]*\((?!%rip|%rsp)[^)]*\),[^\n]*%(?:[xyz]mm\d+|k\d)\{%k\d\}"
    ),
}
A_MAXIMUM_OF_FLOATS = re.compile(r"\tv(?:max|min)p[sd]\s[^\n]*%zmm")


@pytest.mark.parametrize("what", NOT_IN_AVX512)
def test_instructions_that_are_not_there(instructions, what):
    assert not re.findall(NOT_IN_AVX512[what], instructions)


def test_only_loops_for_one_maker_take_a_maximum_of_floats(instructions):
    """Covers every clamp between numbers: Note [vmaxps]."""
    functions = re.split(r"\n\n(?=[0-9a-f]+ <)", instructions)
    by_instruction = ["21MaxInstructionElement" in f.partition("\n")[0] for f in functions]
    takes = [bool(A_MAXIMUM_OF_FLOATS.search(f)) for f in functions]
    whole = ["foreach_whole_word" in f.partition("\n")[0] for f in functions]
    assert any(takes) and not [
        f for f, a, t in zip(functions, by_instruction, takes) if t and not a
    ]
    assert all(t for a, t, w in zip(by_instruction, takes, whole) if a and w)


def test_no_loop_takes_a_vector_apart(instructions):
    """Lane by lane, an element takes ten times as long, as torch.fmax and fmin on
    floats once did with AVX-512."""
    functions = re.split(r"\n\n(?=[0-9a-f]+ <)", instructions)
    loops = [f for f in functions if "foreach_whole_word" in f.partition("\n")[0]]
    assert len(loops) > 100
    assert not [f for f in loops if re.search(r"\tv(?:align[dq]|pextr[bwdq])\s", f)]


def test_loops_leave_no_upper_halves(instructions):
    """A function that wrote them ends with vzeroupper, so that other code does
    not wait for our registers."""
    functions = re.split(r"\n\n(?=[0-9a-f]+ <)", instructions)
    loops = [
        f for f in functions if re.match(r"[0-9a-f]+ <_ZZN9clampgrad(4avx2|6avx512)9make_loopI", f)
    ]
    wrote = [f for f in loops if "\tret" in f and re.search(r"%[yz]mm", f)]
    assert wrote
    assert all("\tvzeroupper" in f for f in wrote)


def test_what_is_compiled_for_a_set_stays_there(instructions):
    """The linker keeps one copy of an inline function: were it one of these, older machines would
    run it. A template whose arguments are of a file's own (_GLOBAL__N_1) has no other copy."""
    functions = re.findall(r"^[0-9a-f]+ <(\S+)>:\n((?:.+\n)*)", instructions, re.MULTILINE)
    of_a_set = re.compile("9clampgrad(4avx2|6avx512)|NS_(4avx2|6avx512)12_GLOBAL__N_1")
    elsewhere = [f for f in functions if not of_a_set.search(f[0])]
    assert 500 < len(elsewhere) < len(functions) - 100
    needs = re.compile(r"%[yz]mm|%k[0-7]\b|\tv[a-z]")
    assert not [name for name, code in elsewhere if needs.search(code)]


@pytest.mark.skipif(not OBJDUMP or MACHINE != "aarch64", reason="needs objdump and loops for NEON")
def test_bits_are_not_taken_lane_by_lane_on_arm64():
    """The bits of a word are added up in bytes."""
    code = disassembled()
    added, taken = (len(re.findall(i, code)) for i in (r"\taddp\tv\d+\.16b", r"\tumov\t"))
    assert added > 100 * taken


CAPABILITIES = {"DEFAULT": [], "AVX2": ["default"], "AVX512": ["avx2", "default"]}


@pytest.mark.of_cpus("the instruction sets are those of CPUs")
@pytest.mark.skipif("ATEN_CPU_CAPABILITY" in os.environ, reason="it runs this very file")
@pytest.mark.parametrize(
    "lower", slow_after(1, CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), []))
)
def test_lower_instruction_sets(lower):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = run(*command, env={**os.environ, "ATEN_CPU_CAPABILITY": lower})
    assert done.returncode == 0, done.stdout[-3000:]
