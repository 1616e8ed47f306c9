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

pytestmark = [pytest.mark.thorough, pytest.mark.of_cpus("the host runs the kernels")]

ROOT = Path(__file__).resolve().parents[2]
# A convention by its name, and whether the loss is maximised.
EXACT_CALLS = [(gradient, False) for gradient in EXACT]
CALLS = [*EXACT_CALLS, *product(PSEUDO, (False, True))]
TENSORS = [
    *product(("maximum", "minimum", "fmax", "fmin"), EXACT_CALLS),
    *product(("clamp_min", "clamp_max", "clamp"), CALLS),
]
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


def lengths(dtype):
    tile = 32 * 64 // dtype.itemsize  # of a warp, which has 64 bytes a lane; a block has 8 warps
    return [1, 2, 63, 64, 65, tile - 1, tile, tile + 1, 2 * tile + 37, 9 * tile + 130]


def as_lanes(dtype, *numbers):
    """Numbers as kernels take them: those of 16 bits by their bits."""

    def lane(number):
        x = torch.tensor(number, dtype=dtype)
        return float(x.view(torch.uint16) if dtype.itemsize == 2 else x)

    return [None if number is None else lane(number) for number in numbers]


class Guarded:
    """Room for what is like a Tensor, `offset` elements past a multiple of 64 bytes, with borders of known bytes."""

    def __init__(self, like, offset=0):
        begin, size = 64 + offset * like.itemsize, like.numel() * like.itemsize
        self.memory = torch.full((begin + size + 161,), 0xA5, dtype=torch.uint8)
        begin += -self.memory.data_ptr() % 64
        self.tensor = self.memory[begin : begin + size].view(like.dtype)
        self.borders = self.memory[:begin], self.memory[begin + size :]

    def check(self, expected, where=""):
        assert_same(self.tensor.view(expected.dtype), expected.detach(), where)
        assert all((border == 0xA5).all() for border in self.borders), where


def recorded(name, *args, call):
    """The result on the CPU, and its bits."""
    gradient, maximize = call
    keywords = {"gradient": gradient} | ({"maximize": True} if maximize else {})
    y = getattr(clampgrad, name)(*args, **keywords)
    return y, y.grad_fn._saved_bits


def check_numbers(kernels, x, g, bounds, call, offset=0):
    """The result, into a Tensor of its own and in place, its bits, and the gradient."""
    leaf, where = x.clone().requires_grad_(), f"{call} {len(x)} {offset} {bounds}"
    y, bits = recorded("clamp", leaf, *bounds, call=call)
    y.backward(g)
    source = Guarded(x, offset)
    source.tensor.copy_(x)
    for result in (Guarded(x, offset), source):
        saved = Guarded(bits)
        lanes = as_lanes(x.dtype, *bounds)
        kernels.number_forward(source.tensor, result.tensor, saved.tensor, *lanes, *call)
        result.check(y, where)  # which zero a clamp returns differs between CPU and GPU
        saved.check(bits, where)
    gradient, incoming = Guarded(g, offset), Guarded(g, offset).tensor.copy_(g)
    kernels.number_backward(incoming, bits, gradient.tensor, *call)
    gradient.check(leaf.grad, where)


def check_tensors(kernels, name, args, g, which, call, offset=0):
    """The result and its bits, all gradients, and each of them alone; `which` arguments are differentiated, as bits."""
    where, extremum = f"{len(g)} {offset} {which}", None if name == "clamp" else name
    leaves = [a.clone().requires_grad_(bool(which >> i & 1)) for i, a in enumerate(args)]
    y, bits = recorded(name, *leaves, call=call)
    y.backward(g)
    result, saved = Guarded(y, offset), Guarded(bits)
    kernels.forward(args, result.tensor, saved.tensor, extremum, call[0], which)
    result.check(y.detach().view(torch.uint8), where)
    saved.check(bits, where)
    every = range(len(args))
    for wanted in [every, *([i] for i in every)]:
        out = [Guarded(g, offset) if i in wanted else None for i in every]
        kernels.backward(g, bits, [o and o.tensor for o in out], extremum, *call)
        for guarded, leaf in zip(out, leaves):
            if guarded:
                guarded.check(leaf.grad if leaf.requires_grad else guarded.tensor, where)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [c for c in CALLS if c[0] != "straight_through"], ids=str)
def test_numbers(kernels, call, dtype):
    bounds = [(0.0, 1.0), (0.0, None), (None, 1.0), (1.0, 0.0), (1.0, 1.0)]
    for i, n in enumerate(lengths(dtype)):
        x, g = tied(n, dtype=dtype, seed=i), tied(n, dtype=dtype, seed=i + 100)
        for offset in (0, 1 + i % 5):
            check_numbers(kernels, x, g, bounds[i % len(bounds)], call, offset)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, call", TENSORS, ids=str)
def test_tensors(kernels, name, call, dtype):
    count = 3 if name == "clamp" else 2
    for i, n in enumerate(lengths(dtype)):
        *args, g = (tied(n, dtype=dtype, seed=i + 50 * k) for k in range(count + 1))
        some = 2**count - 1
        check_tensors(kernels, name, args, g, some - i % some, call, i % 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_number(kernels, dtype):
    """As x, and as a gradient of which a half, a quarter or a third passes."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)
    check_numbers(kernels, every, every, (-1.0, 1.0), ("half", False))
    ties = torch.zeros_like(every)
    for bounds in ((0.0, None), (0.0, 0.0)):
        check_numbers(kernels, ties, every, bounds, ("half", False))
    check_tensors(kernels, "clamp", [ties] * 3, every, 7, ("min_norm", False))
