"""Compiled training: sizes, names and bounds that change, checkpoints,
and backward itself compiled."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import clampgrad
from testing.cases import INDUCTOR, slow_after
from testing.comparing import DTYPES, assert_same, every_kind, random_with_ties
from testing.graph_caches import no_graph_caches
from testing.matrix.contexts import clamps_alone

pytestmark = pytest.mark.thorough

# One depends on what is being differentiated, one shares ties, one is no derivative.
# test_compile.py checks that a compiler loses no convention.
SOME = ("min_norm", "half", "with_grad")
EACH = pytest.mark.parametrize("convention", SOME)


def data(*shape, count=3):
    return [random_with_ties(*shape, seed=i, nan=False).clamp(-9, 9) for i in range(count)]


def gradients(f, args):
    leaves = [a.clone().requires_grad_() for a in args]
    f(*leaves).sum().backward()  # not autograd.grad: a reentrant checkpoint does not allow it
    return [leaf.grad for leaf in leaves]


def check(compiled, f, args):
    assert_same(gradients(compiled, args), gradients(f, args))


def test_any_size_in_one_graph_of_each_convention(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(every_kind, backend=counter, fullgraph=True, dynamic=True)
    for rows in (5, 8, 13):
        args = [*data(rows, 4, count=1), *data(4, count=2)]
        for convention in SOME:
            f = partial(every_kind, convention=convention)
            check(partial(compiled, convention=convention), f, args)
    assert counter.frame_count == len(SOME)


def compilations(function, bounds, backend, dtype=torch.float32):
    """How often it was compiled after each call with another bound."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)

    def f(x, bound):
        return function(x, -bound, bound)

    compiled = torch.compile(f, backend=counter, fullgraph=True)
    counts = []
    for bound in bounds:
        check(partial(compiled, bound=bound), partial(f, bound=bound), [data(40)[0].to(dtype)])
        counts.append(counter.frame_count)
    return counts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_integer_for_a_bound(dtype, backend):
    """After the second one no integer compiles again, as with torch.clamp: 16 bits hold these."""
    for clamp in (clampgrad.clamp, torch.clamp):
        assert compilations(clamp, (5, 1, 2, 4), backend, dtype) == [1, 2, 2, 2]


def test_another_number_for_a_bound(backend):
    """Every other one compiles again, also where torch.clamp's would be a symbol (support.md). One
    attempt to make it a symbol fails. A Tensor compiles once."""
    numbers = (0.5, 1.5, 2.5, 4.5)
    assert compilations(clampgrad.clamp, numbers, backend) == [1, 3, 4, 5]
    tensors = [torch.tensor(number) for number in numbers]
    assert compilations(clampgrad.clamp, tensors, backend) == [1, 1, 1, 1]


# Calls that ask for the value of a bound, and calls that do not need it.
CHANGING = {
    "half": lambda x, n: clampgrad.clamp(x, -n, n, gradient="half"),
    "beside a Tensor": lambda x, n: clampgrad.clamp(x, -n, x.detach() + n),
    "one of two bounds": lambda x, n: clampgrad.clamp(x, -n, 3, gradient="with_grad"),
    "straight_through": lambda x, n: clampgrad.clamp(x, -n, n, gradient="straight_through"),
    "mingrad": lambda x, n: torch.ops.clampgrad.clamp_mingrad(x, -n, n),
    "without a gradient": lambda x, n: clampgrad.clamp(x.detach(), -n, n) + x,
}


def check_numbers(f, numbers, values, pinned=False):
    """One compiled function, of one number after the other. Inductor's cache on disk has no guard
    for a number that is used twice, so it serves the earlier value
    (github.com/pytorch/pytorch/issues/194976)."""
    with no_graph_caches():
        compiled, x = torch.compile(f), torch.tensor(values)
        for n in numbers:
            check(partial(compiled, n=n), partial(f, n=n), [x])
            if not pinned:  # where nothing is differentiated, that is torch's own call
                assert_same(compiled(x, n), f(x, n))


@INDUCTOR
@pytest.mark.parametrize("kind", slow_after(1, CHANGING))
def test_a_changing_number_used_twice(kind):
    values = [-3.0, -2, -1, 0.5, 1, 1.5]
    check_numbers(lambda x, n: CHANGING[kind](x, n) + x * n, (0.5, 1.0, 2.0), values)


NEW_PROCESS = """
import torch, clampgrad
from torch._inductor.config import patch
from torch._inductor.utils import fresh_inductor_cache

x = torch.tensor([-3.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
f = lambda x, n: clampgrad.clamp(x, max=2 * n, gradient="half") + x * n
compiled = torch.compile(f)

def gradient(f, n):
    leaf = x.clone().requires_grad_()
    f(leaf, n).sum().backward()
    return leaf.grad

with patch(fallback_by_default=True), fresh_inductor_cache():
    assert all(torch.equal(gradient(compiled, n), gradient(f, n)) for n in (0.25, 0.75, 0.5, 1.0))
"""


def test_a_changing_number_in_a_new_process(program):
    """What guards it is set where the package is imported."""
    ended = program("-c", NEW_PROCESS)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("convention", ["with_grad", "restoring", "half"])
def test_an_integer_that_changes_guards_nothing(convention):
    """It is compiled once, where the other bound is a constant."""
    counter = CompileCounterWithBackend("aot_eager")
    f = partial(clampgrad.clamp, gradient=convention)
    compiled = torch.compile(lambda x, n: f(x, 0, n), backend=counter, dynamic=True, fullgraph=True)
    for n in (3, 5, 7, 9):
        check(partial(compiled, n=n), lambda x, n=n: f(x, 0, n), [data(40)[0]])
    assert counter.frame_count == 1


# What a program may compute from a number before it is a bound.
MADE = {
    "2 * n": lambda n: 2 * n,
    "n + 1": lambda n: n + 1,
    "n * 0.5": lambda n: n * 0.5,
    "1 / n": lambda n: 1 / n,
    "max(n, 3)": lambda n: max(n, 3),
    "-n": lambda n: -n,
}


@INDUCTOR
@pytest.mark.parametrize("pinned", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("made", slow_after(3, MADE))
def test_what_is_made_of_a_number_that_changes(made, pinned):
    """The same, of any expression, and of a pinned call."""
    clamp = torch.clamp if pinned else partial(clampgrad.clamp, gradient="half")
    values = [-3.0, -1, -0.5, 0.25, 0.5, 1, 1.5, 2, 2.25, 3, 4, 4.5, 9]
    numbers = (0.5, 1.5, 1.0, 2.0, 2.25)
    # Operators are called, and no C++ is compiled: this is about the cache.
    operators = torch._inductor.config.patch(fallback_by_default=True)
    with operators, clampgrad.pin("half" if pinned else None):
        check_numbers(lambda x, n: clamp(x, max=MADE[made](n)) + x * n, numbers, values, pinned)


def of_size(x):
    return 1 - 1 / x.shape[0]


def at_bounds(n, dtype):
    bound = torch.tensor(1 - 1 / n, dtype=dtype)
    return torch.cat([bound.repeat(3), torch.linspace(-2, 2, n - 3).to(dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_bound_made_of_a_size(dtype, backend):
    """One graph serves all sizes, in 16 bits one each; and a tie of the rounded bound is one."""

    def f(x):
        y = x * 0
        for convention in ("inclusive", "min_norm", "half", "restoring"):
            weight = 2 ** len(convention)  # which tells the conventions apart
            y = y + weight * clampgrad.clamp(x, -1, of_size(x), gradient=convention)
        return y + torch.ops.clampgrad.clamp_max_mingrad(x, of_size(x))

    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(f, backend=counter, fullgraph=True, dynamic=True)
    for n in (5, 7, 10, 11):
        check(compiled, f, [at_bounds(n, dtype)])
    assert counter.frame_count == (1 if dtype == torch.float32 else 4)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
@pytest.mark.parametrize(
    "number, dtype",
    [
        (lambda x: x.sum().int().item(), torch.float32),
        (lambda x: x.sum().item(), torch.float32),
        (lambda x: x[0].int().item() / 10, torch.bfloat16),  # the second is at the rounded bound
    ],
)
def test_a_bound_made_of_data(number, dtype, backend):
    """It asks nothing of the symbol that the forward does not need."""

    def f(x):
        return clampgrad.clamp(x, 0, number(x), gradient="half") + clampgrad.clamp_min(x, number(x))

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for values in ([3.0, 0.3, -1, 0], [1.0, 0.1, 2, -1]):
        check(compiled, f, [torch.tensor(values, dtype=dtype)])


CHECKPOINTS = {
    "not reentrant": {},
    "reentrant": {"use_reentrant": True},
    "selective": {"context_fn": partial(create_selective_checkpoint_contexts, clamps_alone)},
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@EACH
def test_checkpoints(convention, kind, backend):
    def segment(x, lo, hi):
        return every_kind(x * 2, lo, hi, convention) * 3

    def f(x, lo, hi):
        return checkpoint(segment, x, lo, hi, **{"use_reentrant": False, **CHECKPOINTS[kind]})

    check(torch.compile(f, backend=backend, fullgraph=True), segment, data(40))


@EACH
def test_backward_itself_compiled(convention, backend):
    """The whole backward pass is one graph, without a break, and compiled once."""
    counter = CompileCounterWithBackend(backend)
    f, args = partial(every_kind, convention=convention), data(40)
    expected = gradients(f, args)
    for _ in range(2):
        compiler = torch.compile(backend=counter, fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            assert_same(gradients(f, args), expected)
    assert counter.frame_count == 1


@INDUCTOR
@pytest.mark.parametrize("gradient", ["min_norm", "inclusive", "half"])
def test_a_size_that_16_bits_do_not_hold(gradient):
    """Inductor does not round it, and what lies below must stay blocked."""

    def f(x):
        return clampgrad.clamp(x, min=x.shape[0], gradient=gradient)

    x = torch.zeros(2049, dtype=torch.float16)
    x[1], x[2] = 2048, 4096
    check(torch.compile(f, dynamic=True), f, [x])
