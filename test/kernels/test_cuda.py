"""On a GPU: the kernels agree with the CPU's, and keep CUDA's own rules.

The other test files run there too, with `pytest --device cuda`. test_cuda_on_host.py and
lab/cuda_check.py check what needs no GPU.
"""

import os
import shutil
import sys
from functools import partial
from itertools import product

import pytest
import torch

import clampgrad
from oracle import CONVENTIONS, EXACT, gradient_of_x
from testing.comparing import BOUNDS, DTYPES, assert_same, eager, random_with_ties
from testing.matrix.reference import ARGUMENTS
from testing.processes import run

HAS_KERNELS = torch._C._dispatch_has_kernel("clampgrad::_mask") and (
    torch._C._dispatch_has_kernel_for_dispatch_key("clampgrad::_mask", "CUDA")
)
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(not HAS_KERNELS, reason="clampgrad was built without CUDA"),
]


def clamp(convention):
    return lambda x: clampgrad.clamp(x, 0, 1, gradient=convention)


def on_gpu(*tensors):
    return [t.cuda() for t in tensors]


def random(*shape, dtype=torch.float32, seed=0):
    return random_with_ties(*shape, dtype=dtype, seed=seed).cpu()


# ---- The same as on the CPU ----------------------------------------------------------------------

LENGTHS = [0, 1, 63, 64, 65, 127, 511, 512, 1025, 4096, 300_007]


def agree(f, args, g, offset=0):
    """Compares with the CPU. The memory of x and the others begins `offset` elements later."""
    results = []
    for device in ("cpu", "cuda"):
        moved = [torch.cat([a.new_zeros(offset), a]).to(device)[offset:] for a in args]
        leaves = [a.requires_grad_() for a in moved]
        y = f(*leaves)
        results.append([y.detach(), *torch.autograd.grad(y, leaves, g.to(device))])
    for one, other in zip(*results):
        assert_same(other.cpu(), one, f"{len(g)} {offset}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", BOUNDS)
def test_numbers(operator, convention, dtype):
    f = partial(getattr(clampgrad, operator), **BOUNDS[operator], gradient=convention)
    for length, offset in product(LENGTHS, (0, 1, 3)):
        x, g = (random(length, dtype=dtype, seed=i) for i in (1, 2))
        agree(f, [x], g, offset)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("operator", ARGUMENTS)
def test_tensors(operator, convention, dtype):
    f = partial(getattr(clampgrad, operator), gradient=convention)
    for length in LENGTHS:
        x, y, z, g = (random(length, dtype=dtype, seed=i) for i in range(4))
        agree(f, [x, y, z][: len(ARGUMENTS[operator])], g)


# Of x, and of what is broadcast to it: no dimension, a channel, one of an odd
# size, a row, a column, several.
SHAPES = [
    ((8, 40, 16, 16), ()),
    ((8, 40, 16, 16), (40, 1, 1)),
    ((8, 40, 7, 7), (40, 1, 1)),
    ((300, 130), (130,)),
    ((300, 129), (129,)),
    ((129, 300), (129, 1)),
    ((4, 6, 16, 8), (4, 1, 16, 1)),
    ((2, 3, 2, 3, 2, 3), (2, 1, 2, 1, 2, 1)),
]
FORMATS = {
    "contiguous": lambda t: t,
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "a transpose": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "a slice": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every other": lambda t: torch.stack([t, t], -1)[..., 0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("of_x, of_bound", SHAPES, ids=str)
def test_inputs_are_read_where_they_lie(of_x, of_bound, format, dtype):
    """Bounds and gradients that are broadcast: their shares are those on
    a CPU, element for element."""
    if format == "channels_last" and len(of_x) != 4:
        pytest.skip("of four dimensions alone")
    x, full = (FORMATS[format](random(*of_x, dtype=dtype, seed=i)) for i in range(2))
    bound, other, part = (random(*of_bound, dtype=dtype, seed=i) for i in range(2, 5))
    g = random(*of_x, dtype=dtype, seed=5)
    for name, args in (
        ("maximum", (x, bound)),
        ("fmin", (bound, x)),
        ("clamp", (x, bound, other)),
        ("clamp", (bound, x, full)),
    ):
        results = []
        for device in ("cpu", "cuda"):
            # Expanded, so that nothing is summed: CPU and GPU add in another order.
            leaves = [a.to(device).expand(of_x).requires_grad_() for a in args]
            y = getattr(clampgrad, name)(*leaves, gradient="half")
            gradients = [
                torch.autograd.grad(y, leaves, incoming.to(device).expand(of_x), retain_graph=True)
                for incoming in (g, part)
            ]
            assert "Recorded" in type(y.grad_fn).__name__
            results.append([y.detach(), *gradients[0], *gradients[1]])
        for on_cpu, on_cuda in zip(*results):
            assert_same(on_cuda.cpu(), on_cpu, name)


@pytest.mark.parametrize("gradient", ["min_norm", "inclusive", "half", "with_grad", "restoring"])
def test_gradients_of_sums_and_means(gradient):
    for reduced in ((), (2, 3), (0,), (0, 2, 3)):
        for memory_format in (torch.contiguous_format, torch.channels_last):
            gradients = []
            for device in ("cpu", "cuda"):
                x = random(4, 40, 8, 8).to(device).contiguous(memory_format=memory_format)
                x.requires_grad_()
                y = clampgrad.clamp(x, 0, 1, gradient=gradient)
                total = y.sum(reduced) if reduced else y.sum()
                gradients += torch.autograd.grad(total, x, torch.full_like(total, -0.25))
            assert_same(gradients[1].cpu(), gradients[0], f"{reduced} {memory_format}")


@pytest.mark.parametrize("of_bound", [(), (64, 1, 1), (32,)], ids=str)
def test_nothing_of_the_size_of_x_is_copied(of_bound):
    """Beyond a result, its bits and gradients there is no memory of the size of x."""
    x = random(16, 64, 32, 32).cuda().requires_grad_()
    lo, hi = (torch.full(of_bound, float(n), device="cuda") for n in (0, 1))
    size = x.numel() * x.element_size()

    def peak(f):
        f()  # what is allocated once
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        f()
        return torch.cuda.max_memory_allocated() - before

    assert peak(lambda: clampgrad.clamp(x, lo, hi)) < 1.2 * size
    assert peak(lambda: torch.autograd.grad(clampgrad.clamp(x, lo, hi).sum(), x)) < 2.2 * size


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_number(dtype):
    """As x, as a bound, and as a gradient of which a half, a quarter or a third passes."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)
    numbers = torch.tensor([-torch.inf, -1, -0.0, 0.0, 1, torch.inf, torch.nan], dtype=dtype)
    ties = torch.zeros_like(every)
    for gradient in CONVENTIONS:
        agree(lambda x: clampgrad.clamp(x, -1, 1, gradient=gradient), [every], every)
        agree(lambda x: clampgrad.clamp(x, 0, 0, gradient=gradient), [ties], every)
        agree(lambda *t: clampgrad.clamp(*t, gradient=gradient), [ties] * 3, every)
    for gradient, number in product(EXACT, numbers):
        args = [every, number.expand_as(every).clone()]
        for name in ("maximum", "minimum"):
            agree(partial(getattr(clampgrad, name), gradient=gradient), args, every)
        agree(partial(clampgrad.clamp, gradient=gradient), [*args, every.flip(0)], every)


def test_the_fast_path_is_taken():
    x = random(4096).cuda().requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = clampgrad.clamp(x, 0, 1)
        z = clampgrad.maximum(x, x.flip(0))
    assert [s.untyped_storage().nbytes() for s in saved] == [4096 // 8, 2 * 4096 // 8]
    assert all("Recorded" in type(t.grad_fn).__name__ for t in (y, z))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bounds_beyond_a_dtype_of_16_bits(dtype):
    """torch computes in float32 on the GPU and takes them; on the CPU it raises."""
    x = random(133, dtype=dtype).cuda()
    for bounds in ((-1e6, 1e6), (0.1, None), (None, 1e30)):
        expected = torch.clamp(x, *bounds)
        leaf = x.clone().requires_grad_()
        assert_same(clampgrad.clamp(leaf, *bounds).detach(), expected)
        assert_same(torch.func.vjp(lambda x: clampgrad.clamp(x, *bounds), x)[0], expected)
    with pytest.raises(RuntimeError, match="overflow"):
        clampgrad.clamp(leaf, max=1e60)


# ---- CUDA's own rules ----------------------------------------------------------------------------


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_kernels_run_on_the_current_stream(convention):
    """The input is written late, on a stream of its own; another stream would see zeros."""
    value, g = on_gpu(random(1 << 20), random(1 << 20, seed=1))
    x = torch.zeros_like(value).requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        with torch.no_grad():
            x.copy_(value)
        y = clamp(convention)(x)
        (gradient,) = torch.autograd.grad(y, x, g)
    side.synchronize()
    assert_same(y.detach(), value.clamp(0, 1))
    assert_same(gradient.cpu(), gradient_of_x(convention, value.cpu(), g.cpu(), 0, 1))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_device_that_is_not_the_current_one():
    x = random(5000).to("cuda:1").requires_grad_()
    y = random(5000, seed=1).to("cuda:1")
    assert torch.cuda.current_device() == 0
    clampgrad.maximum(clampgrad.clamp(x, 0, 1), y).sum().backward()
    assert x.grad.device == x.device


@pytest.mark.parametrize("convention", EXACT)
def test_graphs(convention):
    """Captured once, forward and backward, and replayed with other values."""

    def f(x, lo, hi):
        y = clampgrad.clamp(x, 0, 1, gradient=convention)
        z = clampgrad.maximum(y, lo, gradient=convention)
        return clampgrad.clamp(z, lo, hi, gradient=convention)

    values = [on_gpu(*(random(1000, seed=10 * i + k) for k in range(4))) for i in range(3)]
    leaves = [v.clone().requires_grad_() for v in values[0][:3]]
    g = values[0][3].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm up, as capturing asks for
        torch.autograd.grad(f(*leaves), leaves, g)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(*leaves)
        gradients = torch.autograd.grad(y, leaves, g)
    for *args, incoming in values:
        with torch.no_grad():
            for leaf, arg in zip(leaves, args):
                leaf.copy_(arg)
            g.copy_(incoming)
        graph.replay()
        for gradient, expected in zip(gradients, eager(f, args, incoming)):
            assert_same(gradient, expected)


def test_more_than_2_to_the_31_elements():
    if torch.cuda.mem_get_info()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free memory on the GPU")
    n = 2**31 + 2**20 + 37
    x = torch.empty(n, dtype=torch.bfloat16, device="cuda").uniform_(-1, 2)
    x[::1001] = 1
    g = torch.empty_like(x).normal_()
    leaf = x.requires_grad_()
    y = clampgrad.clamp(leaf, 0, 1)
    (gradient,) = torch.autograd.grad(y, leaf, g)
    x = x.detach()
    # In pieces, so that the check itself needs little memory.
    for begin in [*range(0, n, 2**28)]:
        piece = slice(begin, begin + 2**28)
        assert torch.equal(y[piece], x[piece].clamp(0, 1)), begin
        inside = (x[piece] > 0) & (x[piece] < 1)
        assert torch.equal(gradient[piece], torch.where(inside, g[piece], 0)), begin


VIEWS = {
    "a column": lambda x: x[:, 0],
    "the column": lambda x: x[:, :1],
    "a row": lambda x: x[0],
    "an element": lambda x: x[2, 3],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_bound_that_is_an_expanded_view_of_self(view):
    """In place, it is what it was before the call."""
    start = random(512, 512).cuda().requires_grad_()
    x = start * 1
    bound = VIEWS[view](x.detach()).expand_as(x)
    expected = torch.clamp(x.detach(), max=bound.clone())
    clampgrad.clamp_(x, max=bound)
    assert_same(x.detach(), expected)


def test_a_number_beside_more_than_2_to_the_32_elements():
    """Not aligned, so that elements are counted one by one."""
    if torch.cuda.mem_get_info()[0] < 30 * 2**30:
        pytest.skip("needs 30 GiB of free memory on the GPU")
    x = torch.zeros(2**32 + 2049, dtype=torch.bfloat16, device="cuda")[1:]
    x[-5:] = 2
    y = clampgrad.maximum(x.requires_grad_(), x.new_tensor(0.5)).detach()
    assert y[-5:].tolist() == [2] * 5 and y[-10:-5].tolist() == y[:5].tolist() == [0.5] * 5


def test_broadcast_to_more_than_2_to_the_31_elements():
    """Of a number there is no copy up to twice as many; anything else is copied,
    because of 32 bits for an index."""
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs 40 GiB of free memory on the GPU")
    x = torch.empty(2**15 + 1, 2**16, dtype=torch.bfloat16, device="cuda").uniform_(-1, 2)
    leaf = x.requires_grad_()
    for bound in (x.new_tensor(0.5), x.new_tensor(0.5).expand(2**16).clone()):
        y = clampgrad.maximum(leaf, bound)
        (gradient,) = torch.autograd.grad(y.sum(), leaf)
        for begin in range(0, len(x), 2**12):
            piece = slice(begin, begin + 2**12)
            assert torch.equal(y[piece], x[piece].clamp(min=0.5)), begin
            assert torch.equal(gradient[piece], (x[piece] > 0.5).to(x.dtype)), begin
        del y, gradient


def test_bits_left_on_the_cpu_are_refused():
    leaf = random(1000).cuda().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t):
        y = clampgrad.clamp(leaf, 0, 1)
    with pytest.raises(RuntimeError, match="saved bits must be"):
        y.sum().backward()


def test_reduce_overhead():
    """Other modes: test_compile.py, with --device cuda."""
    x, g = on_gpu(random(4096), random(4096, seed=1))
    f = torch.compile(clamp("min_norm"), mode="reduce-overhead", fullgraph=True)
    for _ in range(3):  # graphs are captured in the second call
        (gradient,) = eager(f, [x], g)
    assert_same(gradient, eager(clamp("min_norm"), [x], g)[0])


SMALL = """
import torch, clampgrad
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    for n in (1, 65, 511, 1024, 5001):
        for offset in (0, 1):
            x, y, z, g = (torch.randn(n + offset, device="cuda").to(dtype)[offset:] for _ in range(4))
            for t in (x, y, z):
                t.requires_grad_()
            for f in (
                lambda: clampgrad.clamp(x, -1, 1, gradient="half"),
                lambda: clampgrad.clamp(x, y, z),
                lambda: clampgrad.maximum(x, y),
                lambda: torch.ops.clampgrad.clamp_mingrad(x, -1, 1),
            ):
                torch.autograd.grad(f(), [x, y, z], g, allow_unused=True)
torch.cuda.synchronize()
print("done")
"""


def test_compute_sanitizer():
    path = os.environ["PATH"] + os.pathsep + "/usr/local/cuda/bin"
    sanitizer = shutil.which("compute-sanitizer", path=path)
    if sanitizer is None:
        pytest.skip("there is no compute-sanitizer")
    # Only our kernels, and without the allocator, which would leave room around a tensor.
    command = [sanitizer, "--error-exitcode", "9", "--kernel-name", "kernel_substring=clampgrad"]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    ended = run(*command, sys.executable, "-c", SMALL, env=environment)
    output = ended.stdout + ended.stderr
    if "Device not supported" in output:
        pytest.skip("compute-sanitizer does not support this device here")
    assert ended.returncode == 0 and "done" in ended.stdout, output[-6000:]
