"""The CUDA kernels do what the CPU's do: the same bits, results and gradients, element for element.

Their sources are compiled for the host and run there, a warp as 32 coroutines that meet at every
shuffle (lab/cuda_on_host/). So indices, tails, alignment and arithmetic are checked without a GPU;
what a GPU adds (streams, its memory, its compiler) is checked in test_cuda.py.
"""

import os
import subprocess
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

import clampgrad
from clampgrad import EXACT, PSEUDO
from common import DTYPES, assert_same, tied

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]


# Each by its name, and whether the loss is maximised.
EXACT_CALLS = [(gradient, False) for gradient in EXACT]
PSEUDO_CALLS = [(gradient, maximize) for gradient in PSEUDO for maximize in (False, True)]
CALLS = [*EXACT_CALLS, *PSEUDO_CALLS]
EXTREMA = ("maximum", "minimum", "fmax", "fmin")
PAIRS = [*product(EXTREMA, EXACT_CALLS), *product(("clamp_min", "clamp_max"), CALLS)]

# A block has 8 warps, a warp a tile of 64 bytes a lane.
TILE = {dtype: 32 * 64 // dtype.itemsize for dtype in DTYPES}
BORDER = 97  # bytes around a result that must stay as they are


DEFINED = {"tiles of four rows": [], "of one": ["-DSMALL_TILES"]}


@pytest.fixture(
    scope="module", params=["tiles of four rows", pytest.param("of one", marks=pytest.mark.slow)]
)
def kernels(request, tmp_path_factory):
    library = tmp_path_factory.mktemp("cuda_on_host") / "kernels.so"
    name = f"on_host_{[*DEFINED].index(request.param)}"
    paths = [ROOT / "lab/cuda_on_host", ROOT / "csrc", *include_paths()]
    torch_libraries = Path(torch.__file__).parent / "lib"
    command = [
        *(os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-w"),
        # A misaligned vector traps.
        *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"),
        *(f"-DNAME={name}", *DEFINED[request.param]),
        *(f"-I{path}" for path in paths),
        str(ROOT / "lab/cuda_on_host/kernels.cpp"),
        *("-o", str(library), f"-L{torch_libraries}", "-lc10", "-ltorch", "-ltorch_cpu"),
    ]
    subprocess.run(command, check=True)
    torch.ops.load_library(library)
    return getattr(torch.ops, name)


def as_lanes(dtype, *numbers):
    """Numbers as kernels take them: those of 16 bits by their bits."""

    def lane(number):
        x = torch.tensor(number, dtype=dtype)
        return float(x.view(torch.uint16) if dtype.itemsize == 2 else x)

    return [None if number is None else lane(number) for number in numbers]


def lengths(dtype):
    tile = TILE[dtype]
    return [1, 2, 63, 64, 65, tile - 1, tile, tile + 1, 2 * tile + 37, 9 * tile + 130]


class Guarded:
    """Room for a result, with a border of known bytes."""

    def __init__(self, n, dtype, offset=0):
        size = n * dtype.itemsize
        before = 64 + offset * dtype.itemsize
        self.memory = torch.full((before + size + BORDER + 64,), 0xA5, dtype=torch.uint8)
        shift = -self.memory.data_ptr() % 64
        self.begin, self.end = shift + before, shift + before + size
        self.tensor = self.memory[self.begin : self.end].view(dtype)

    def check(self):
        assert (self.memory[: self.begin] == 0xA5).all() and (self.memory[self.end :] == 0xA5).all()


def at_offset(tensor, offset):
    """The same values at an address that is `offset` elements past a multiple of 64 bytes."""
    guarded = Guarded(tensor.numel(), tensor.dtype, offset)
    guarded.tensor.copy_(tensor)
    return guarded.tensor


def same_bits(actual, expected):
    return torch.equal(actual.view(torch.uint8), expected.view(torch.uint8))


def random(n, dtype, seed):
    return tied(n, dtype=dtype, seed=seed)


def recorded(name, *args, call):
    """The result on the CPU, and its bits."""
    keywords = {"gradient": call[0]} | ({"maximize": True} if call[1] else {})
    y = getattr(clampgrad, name)(*args, **keywords)
    return y, y.grad_fn._saved_bits


def gradients(y, leaves, g):
    """None for one that is a constant."""
    found = iter(torch.autograd.grad(y, [leaf for leaf in leaves if leaf.requires_grad], g))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [c for c in CALLS if c[0] != "straight_through"], ids=str)
def test_numbers(kernels, call, dtype):
    bounds = [(0.0, 1.0), (0.0, None), (None, 1.0), (1.0, 0.0), (1.0, 1.0)]
    for i, n in enumerate(lengths(dtype)):
        lo, hi = bounds[i % len(bounds)]
        given = as_lanes(dtype, lo, hi)
        for offset in (0, 1 + i % 5):
            x, g = random(n, dtype, i), random(n, dtype, i + 100)
            leaf = x.clone().requires_grad_()
            y, bits = recorded("clamp", leaf, lo, hi, call=call)
            (dx,) = torch.autograd.grad(y, leaf, g)

            result, saved = Guarded(n, dtype, offset), Guarded(bits.numel(), torch.uint8)
            source = at_offset(x, offset)
            kernels.number_forward(source, result.tensor, saved.tensor, *given, *call)
            # Which zero a clamp returns differs between CPU and GPU.
            assert_same(result.tensor, y.detach())
            assert torch.equal(saved.tensor, bits)
            kernels.number_forward(source, source, saved.tensor, *given, *call)
            assert_same(source, y.detach())
            assert torch.equal(saved.tensor, bits)

            gradient = Guarded(n, dtype, offset)
            g = at_offset(g, offset)
            kernels.number_backward(g, saved.tensor, gradient.tensor, *call)
            assert_same(gradient.tensor, dx, f"{call} {n} {offset} {lo} {hi}")
            for guarded in (result, saved, gradient):
                guarded.check()


def check_backward(kernels, g, saved, expected, offset, *rest):
    """All gradients, and each of them alone."""
    n, count = g.numel(), len(expected)
    for wanted in [range(count), *([i] for i in range(count))]:
        out = [Guarded(n, g.dtype, offset) if i in wanted else None for i in range(count)]
        kernels.backward(g, saved, [o and o.tensor for o in out], *rest)
        for guarded, gradient in zip(out, expected):
            if guarded:
                guarded.check()
            if guarded and gradient is not None:
                assert_same(guarded.tensor, gradient, f"{n} {offset} {rest}")


def set_of(differentiated):
    """As bits."""
    return sum(is_in << i for i, is_in in enumerate(differentiated))


def check_forward(kernels, args, y, bits, offset, *call):
    """For Tensors: the kernel writes what the CPU records, to the bit, and nothing beside it."""
    result, saved = Guarded(y.numel(), y.dtype, offset), Guarded(bits.numel(), torch.uint8)
    kernels.forward(args, result.tensor, saved.tensor, *call)
    assert same_bits(result.tensor, y.detach()) and torch.equal(saved.tensor, bits)
    result.check()
    saved.check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("extremum, call", PAIRS, ids=str)
def test_two_tensors(kernels, extremum, call, dtype):
    for i, n in enumerate(lengths(dtype)):
        offset, differentiated = i % 3, [i % 4 != 3, i % 4 != 2]
        *args, g = (random(n, dtype, i + 50 * k) for k in range(3))
        leaves = [a.clone().requires_grad_(d) for a, d in zip(args, differentiated)]
        y, bits = recorded(extremum, *leaves, call=call)
        how = extremum, call[0], set_of(differentiated)
        check_forward(kernels, args, y, bits, offset, *how)
        expected = gradients(y, leaves, g)
        check_backward(kernels, g, bits, expected, offset, extremum, *call)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_three_tensors(kernels, call, dtype):
    for i, (n, which) in enumerate(zip(lengths(dtype), (7, 1, 2, 3, 4, 5, 6, 7, 7, 3))):
        offset, differentiated = i % 3, [bool(which & 1 << k) for k in range(3)]
        *args, g = (random(n, dtype, i + 50 * k) for k in range(4))
        leaves = [a.clone().requires_grad_(d) for a, d in zip(args, differentiated)]
        y, bits = recorded("clamp", *leaves, call=call)
        check_forward(kernels, args, y, bits, offset, None, call[0], which)
        expected = gradients(y, leaves, g)
        check_backward(kernels, g, bits, expected, offset, None, *call)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_number(kernels, dtype):
    """As x, and as a gradient of which a half, a quarter or a third passes."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)
    n = every.numel()
    leaf = every.clone().requires_grad_()
    half, least_norm = ("half", False), ("min_norm", False)
    y, bits = recorded("clamp", leaf, -1.0, 1.0, call=half)
    result, saved = Guarded(n, dtype), Guarded(bits.numel(), torch.uint8)
    bounds = as_lanes(dtype, -1.0, 1.0)
    kernels.number_forward(every, result.tensor, saved.tensor, *bounds, *half)
    assert_same(result.tensor, y.detach())
    assert torch.equal(saved.tensor, bits)

    for bound in ([0.0, 0.0], [0.0, None]):  # a quarter, a half
        tied_there = torch.zeros(n, dtype=dtype, requires_grad=True)
        y, bits = recorded("clamp", tied_there, *bound, call=half)
        (expected,) = torch.autograd.grad(y, tied_there, every)
        kernels.number_backward(every, bits, result.tensor, *half)
        assert_same(result.tensor, expected)

    leaves = [torch.zeros(n, dtype=dtype, requires_grad=True) for _ in range(3)]
    y, bits = recorded("clamp", *leaves, call=least_norm)
    expected = torch.autograd.grad(y, leaves, every)
    check_backward(kernels, every, bits, expected, 0, None, *least_norm)
