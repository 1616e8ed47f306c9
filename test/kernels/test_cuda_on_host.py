"""The CUDA kernels do what the CPU's do: the same bits, results and gradients, element for element.

Their sources are compiled for the host and run there, a warp as 32 coroutines that meet at every
shuffle. So indices, tails, alignment, rules and bits are checked without a GPU. Three files are
left out, and cuda_on_host/ has stubs for them:

- packed.cuh: the instructions for two 16-bit numbers, and inline PTX. The stub computes the same
  with one float after the other.
- memory.cuh: loads and stores of 16 bytes, in inline PTX. The stub copies a struct, which traps if
  it is misaligned.
- launch.cuh: streams, devices and the number of rows. The stub runs one warp after the other, and
  has its own shuffles, votes and byte permutations.

So intrinsics and PTX run on a GPU alone. test_cuda.py tests these there, and with them what nvcc
makes of all of it.
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
from codegen.generate import generate
from oracle import CLAMPS, EXTREMA
from testing.comparing import DTYPES, assert_same, random_with_ties

pytestmark = [pytest.mark.thorough, pytest.mark.of_cpus("the host runs the kernels")]

ROOT = Path(__file__).resolve().parents[2]
# A convention by its name, and whether the loss is maximised.
EXACT_CALLS = [(gradient, False) for gradient in EXACT]
CALLS = [*EXACT_CALLS, *product(PSEUDO, (False, True))]
RECORDED = [c for c in CALLS if c[0] != "straight_through"]  # of numbers
TENSORS = [
    *product(EXTREMA, EXACT_CALLS),
    *product(CLAMPS, CALLS),
]
DEFINED = {"as usual": [], "small tiles": ["-DSMALL_TILES"], "no pairs": ["-DONE_BY_ONE"]}


LOADED = {}  # a second library of the same operators would end the process


def load_kernels(defined, folder):
    library = folder / "kernels.so"
    name = f"on_host_{[*DEFINED].index(defined)}"
    generate(ROOT, folder)
    paths = [ROOT / "test/kernels/cuda_on_host", ROOT / "csrc", folder, *include_paths()]
    torch_libraries = Path(torch.__file__).parent / "lib"
    command = [
        *(os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-w"),
        # A misaligned vector traps.
        *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"),
        *(f"-DNAME={name}", *DEFINED[defined]),
        *(f"-I{path}" for path in paths),
        str(ROOT / "test/kernels/cuda_on_host/kernels.cpp"),
        *("-o", str(library), f"-L{torch_libraries}", "-lc10", "-ltorch", "-ltorch_cpu"),
    ]
    subprocess.run(command, check=True)
    torch.ops.load_library(library)
    return getattr(torch.ops, name)


@pytest.fixture(
    scope="module",
    params=["as usual", *(pytest.param(n, marks=pytest.mark.slow) for n in [*DEFINED][1:])],
)
def kernels(request, tmp_path_factory):
    """Loaded once for each definition: a worker of xdist may return to one after others."""
    if request.param not in LOADED:
        folder = tmp_path_factory.mktemp("cuda_on_host")
        LOADED[request.param] = load_kernels(request.param, folder)
    return LOADED[request.param]


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
    """Room for what is like a Tensor, `offset` elements past a multiple of 64 bytes,
    with borders of known bytes."""

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
    """The result and its bits, all gradients, and each of them alone; `which` arguments
    are differentiated, as bits."""
    where, extremum = f"{len(g)} {offset} {which}", None if name == "clamp" else name
    leaves = [a.clone().requires_grad_(bool(which >> i & 1)) for i, a in enumerate(args)]
    y, bits = recorded(name, *leaves, call=call)
    y.backward(g)
    result, saved = Guarded(y, offset), Guarded(bits)
    kernels.forward(args, result.tensor, saved.tensor, extremum, call[0], which)
    result.check(y.detach().view(torch.uint8), where)
    saved.check(bits, where)
    every = range(len(args))
    for indices in [every, *([i] for i in every)]:
        out = [Guarded(g, offset) if i in indices else None for i in every]
        kernels.backward(g, bits, [o and o.tensor for o in out], extremum, *call)
        for guarded, leaf in zip(out, leaves):
            if guarded:
                guarded.check(leaf.grad if leaf.requires_grad else guarded.tensor, where)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", RECORDED, ids=str)
def test_numbers(kernels, call, dtype):
    bounds = [(0.0, 1.0), (0.0, None), (None, 1.0), (1.0, 0.0), (1.0, 1.0)]
    for i, n in enumerate(lengths(dtype)):
        x, g = (
            random_with_ties(n, dtype=dtype, seed=i),
            random_with_ties(n, dtype=dtype, seed=i + 100),
        )
        for offset in (0, 1 + i % 5):
            check_numbers(kernels, x, g, bounds[i % len(bounds)], call, offset)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, call", TENSORS, ids=str)
def test_tensors(kernels, name, call, dtype):
    count = 3 if name == "clamp" else 2
    for i, n in enumerate(lengths(dtype)):
        *args, g = (random_with_ties(n, dtype=dtype, seed=i + 50 * k) for k in range(count + 1))
        some = 2**count - 1
        check_tensors(kernels, name, args, g, some - i % some, call, i % 3)


# Shapes of x, and of what is broadcast to it.
BROADCAST = {
    "no dimension": ((3, 5, 7, 9), ()),
    "a channel": ((3, 40, 8, 8), (40, 1, 1)),
    "a channel of an odd size": ((3, 40, 7, 7), (40, 1, 1)),
    "a channel, a whole vector": ((6, 12, 2, 4), (12, 1, 1)),
    "a row": ((70, 48), (48,)),
    "an odd row": ((70, 33), (33,)),
    "a column": ((33, 96), (33, 1)),
    "an odd column": ((33, 35), (33, 1)),
    "inside": ((4, 6, 16, 8), (4, 1, 16, 8)),
    "inside and outside": ((4, 6, 5, 8), (1, 6, 1, 8)),
    "every other": ((4, 6, 5, 8), (4, 1, 5, 1)),
    "more than a layout has": ((2, 3, 2, 3, 2, 3), (2, 1, 2, 1, 2, 1)),
}
FORMATS = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "a transpose": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "a slice": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every other": lambda t: torch.stack([t, t], -1)[..., 0],
}


def lies_as(like, offset=0):
    """Guarded memory of the sizes and strides of a dense Tensor."""
    guarded = Guarded(like, offset)
    return guarded, guarded.tensor.as_strided(
        like.shape, like.stride(), guarded.tensor.storage_offset()
    )


def check_layouts(kernels, name, leaves, g, call, offset=0):
    """As check_tensors, of Tensors that need not lie as the result does, and of a
    gradient that need not either."""
    extremum = None if name == "clamp" else name
    y, bits = recorded(name, *leaves, call=call)
    expected = torch.autograd.grad(y, leaves, g)
    expanded = [leaf.detach().expand(y.shape) for leaf in leaves]
    (result, like_y), saved = lies_as(y, offset), Guarded(bits)
    kernels.forward(expanded, like_y, saved.tensor, extremum, call[0], 2 ** len(leaves) - 1)
    assert_same(like_y, y.detach())
    saved.check(bits)
    out = [lies_as(y, offset) for _ in leaves]
    kernels.backward(g, bits, [to for _, to in out], extremum, *call)
    for (_, share), leaf, total in zip(out, leaves, expected):
        assert_same(share.sum_to_size(leaf.shape), total)
    for guarded in (result, saved, *(guarded for guarded, _ in out)):
        assert all((border == 0xA5).all() for border in guarded.borders)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", BROADCAST)
def test_inputs_are_read_where_they_lie(kernels, shapes, dtype):
    """Bounds that are broadcast, one, the other, and both; and gradients, as those of
    sums and means. In the shape of the bound nothing is rounded: a share is a number of
    few bits, which a sum keeps."""
    of_x, of_bound = BROADCAST[shapes]

    def few_bits(*shape, seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(-2, 3, shape, generator=generator).to(dtype)

    for offset, format in enumerate(FORMATS):
        if format == "channels_last" and len(of_x) != 4:
            continue
        x, full, g = (FORMATS[format](few_bits(*of_x, seed=i)) for i in range(3))
        bound, other, part = (few_bits(*of_bound, seed=i) for i in range(3, 6))
        bound = torch.cat([bound.new_zeros(offset), bound.flatten()])[offset:].view(of_bound)
        calls = [
            ("maximum", (x, bound)),
            ("fmin", (bound, x)),
            ("clamp", (x, bound, other)),
            ("clamp", (x, full, bound)),
            ("clamp", (bound, x, full)),
        ]
        for name, args in calls:
            for incoming in (g, part.expand(of_x)):
                leaves = [a.detach().requires_grad_() for a in args]
                check_layouts(kernels, name, leaves, incoming, ("half", False), offset)


@pytest.mark.parametrize("shapes", BROADCAST)
@pytest.mark.parametrize("format", FORMATS)
def test_no_input_is_copied(kernels, shapes, format):
    """However x lies: neither a bound nor a gradient that is broadcast to it, nor x itself. Only
    what steps through more dimensions than a layout has is."""
    of_x, of_bound = BROADCAST[shapes]
    if format == "channels_last" and len(of_x) != 4:
        pytest.skip("it is of four dimensions")
    x = FORMATS[format](torch.rand(of_x))
    y = torch.empty_like(x)
    bound = torch.rand(of_bound).expand(of_x)
    assert kernels.layout(x, y)
    if shapes == "more than a layout has":
        assert not kernels.layout(bound, y)
        return
    strides = kernels.layout(bound, y)
    assert strides and 0 in strides
    assert bool([stride for stride in strides if stride]) == (of_bound != ())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, call", [("numbers", c) for c in RECORDED] + TENSORS, ids=str)
def test_gradients_that_are_broadcast(kernels, name, call, dtype):
    """A backward reads such a gradient in place, under every rule."""
    shape = (6, 33, 4, 8)
    count = {"numbers": 1, "clamp": 3}.get(name, 2)
    for i, of_g in enumerate([(), (33, 1, 1), (6, 1, 4, 1)]):
        leaves = [
            random_with_ties(*shape, dtype=dtype, seed=i + 50 * k).requires_grad_()
            for k in range(count)
        ]
        g = random_with_ties(*of_g, dtype=dtype, seed=i + 200).expand(shape)
        if name == "numbers":
            y, bits = recorded("clamp", *leaves, 0.0, 1.0 if i % 2 else 0.0, call=call)
        else:
            y, bits = recorded(name, *leaves, call=call)
        shares = [lies_as(y)[1] for _ in leaves]
        if name == "numbers":
            kernels.number_backward(g, bits, *shares, *call)
        else:
            kernels.backward(g, bits, shares, None if name == "clamp" else name, *call)
        for share, expected in zip(shares, torch.autograd.grad(y, leaves, g)):
            assert_same(share, expected)


def of_half(call):
    """The others are in the slow tier: `half` passes the whole gradient, a part, and nothing."""
    return [] if call[0] == "half" else pytest.mark.slow


def every_number(dtype):
    """Of 16 bits."""
    return torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", [pytest.param(c, marks=of_half(c)) for c in RECORDED], ids=str)
def test_every_16_bit_number(kernels, call, dtype):
    """As x, and as a gradient of which all, a part or nothing passes. Between bounds of each sign,
    at ties of x with a bound, and at ties of the bounds."""
    every = every_number(dtype)
    check_numbers(kernels, every, every, (-1.0, 1.0), call)
    ties = torch.zeros_like(every)
    for bounds in ((0.0, None), (None, 0.0), (0.0, 0.0)):
        check_numbers(kernels, ties, every, bounds, call)


# What stands beside every number, one of these in each turn.
BESIDE = [0.0, -0.0, 1.0, -1.0, 3e-5, float("inf"), -float("inf"), float("nan")]


TURNS = [pytest.param(*case, 0, marks=of_half(case[1])) for case in TENSORS]
TURNS += [
    pytest.param(*case, turn, marks=pytest.mark.slow)
    for turn in range(1, len(BESIDE))
    for case in TENSORS
    if case[1][0] == "half"
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, call, turn", TURNS, ids=str)
def test_every_16_bit_number_in_tensors(kernels, name, call, turn, dtype):
    """As the first argument, beside others in either order and beside itself, and as a gradient
    of ties, of two and of three."""
    every = every_number(dtype)
    if name in ("fmax", "fmin"):
        # glibc's fmax, which torch calls on a CPU, returns a signalling NaN. A GPU's ignores it.
        every = torch.where(every.isnan(), every.view(torch.int16) | 0x40, every.view(torch.int16))
        every = every.view(dtype)
    beside = torch.tensor(BESIDE, dtype=dtype).roll(turn).repeat(2**16 // len(BESIDE))
    other = beside.view(-1, len(BESIDE)).flip(-1).flatten()
    some = [beside, other][: 1 + (name == "clamp")]
    all_of_them = 2 ** (1 + len(some)) - 1
    check_tensors(kernels, name, [every, *some], every, all_of_them, call)
    check_tensors(kernels, name, [*some, every], every, all_of_them, call)
    check_tensors(kernels, name, [every] * (1 + len(some)), every, all_of_them, call)
