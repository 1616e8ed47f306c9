"""Compiled code keeps for backward the result of a clamp, which the next operator needs anyway, and
also a mask only if the result does not say what the gradient is."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import aot_function
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

import clampgrad
from benchmarks.memory import saved_bytes
from clampgrad._contract.table import STRICT
from oracle import CONVENTIONS, EXACT
from testing.cases import INDUCTOR, slow_after
from testing.comparing import assert_same, check_rows, random_with_ties
from testing.matrix.waivers import IGNORES_NAN
from testing.releases import RELEASE

N = 64
SAID_BY_RESULT = (*STRICT, "straight_through")


# Inductor without its compiler.
BACKEND = aot_autograd(
    fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
    decompositions=select_decomp_table(),
    partition_fn=min_cut_rematerialization_partition,
)


def kept(f, pin=None):
    """Bytes per element of the result of f, between two products."""
    torch._dynamo.reset()
    x, w = (torch.randn(N, N, requires_grad=True) for _ in range(2))
    compiled = torch.compile(lambda x, w: f(x @ w) @ w, backend=BACKEND, fullgraph=True)
    with clampgrad.pin(pin) if pin else nullcontext():
        return saved_bytes(compiled, x, w) / N**2 - 8  # x and w


def called_in_graphs(f, x):
    """The operators in the graph of f, and those in the graph of its backward."""
    called = []

    def compiler(graph, _):
        called.append([node.target for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    aot_function(f, compiler)(x.requires_grad_()).sum().backward()
    forward, backward = called
    return forward, backward


LO = torch.zeros(())
HI = torch.ones(())
NUMBERS = {
    "clamp": lambda x, **c: clampgrad.clamp(x, 0, 1, **c),
    "clamp_min": lambda x, **c: clampgrad.clamp_min(x, 0, **c),
    "clamp_max": lambda x, **c: clampgrad.clamp_max(x, 1, **c),
}
LEAST_NORM = {
    "clamp_mingrad": lambda x: torch.ops.clampgrad.clamp_mingrad(x, 0, 1),
    "ReLU6": clampgrad.nn.ReLU6(),
}
TENSORS = {
    "clamp": lambda x: clampgrad.clamp(x, LO, HI),
    "clamp_min": lambda x: clampgrad.clamp_min(x, LO),
    "a number and a Tensor": lambda x: clampgrad.clamp(x, 0, HI),
    "maximum": lambda x: clampgrad.maximum(x, LO),
    "fmin": lambda x: clampgrad.fmin(x, HI),
}


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("form", NUMBERS)
def test_bounds_that_are_numbers(form, convention):
    """It keeps as much as relu, or one mask more."""
    relu = kept(F.relu)
    assert relu == 4
    clamp = partial(NUMBERS[form], gradient=convention)
    assert kept(clamp) == relu + (convention not in SAID_BY_RESULT)


@pytest.mark.parametrize("form", LEAST_NORM)
def test_least_norm_by_other_names(form):
    assert kept(LEAST_NORM[form]) == 4


@pytest.mark.compiled("only there what is differentiated is known before anything is saved")
@pytest.mark.parametrize("form", TENSORS)
def test_bounds_that_are_constant_tensors(form):
    assert kept(TENSORS[form]) == pytest.approx(4, abs=8 / N**2)  # and the bounds


@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_no_graph_has_an_operator_for_what_is_only_compared(convention, form):
    """A forward's result is computed again in backward, where it is not kept, without detach()."""
    graphs = called_in_graphs(partial(NUMBERS[form], gradient=convention), torch.randn(N))
    for called in graphs:
        assert not {torch.ops.aten.detach.default, torch.ops.aten.alias.default} & {*called}


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_pinned_clamp_keeps_result_and_at_most_a_mask(convention):
    for form in (lambda x: torch.clamp(x, 0, 1), lambda x: x.clamp_min(0)):
        assert kept(form, pin=convention) == 4 + (convention not in SAID_BY_RESULT)


@pytest.mark.parametrize("convention", STRICT)
def test_in_place(convention):
    """It keeps a mask, because the next operator gets a copy. Changing the result
    is no error, as after relu."""
    for form in (
        lambda x: clampgrad.clamp(x, 0, 1, gradient=convention).mul_(2),
        lambda x: clampgrad.clamp_(x, 0, 1, gradient=convention),
        lambda x: clampgrad.clamp_(x.view(-1), 0, 1, gradient=convention).view(N, N),
    ):
        assert kept(form) == 5


# Inductor takes the copies away by which a graph keeps what its inputs were. It calls operators,
# and compiles no C++.
OPERATORS = torch._inductor.config.patch(fallback_by_default=True)
WRITES = {
    "numbers": lambda x, lo, hi, **c: clampgrad.clamp_max_(clampgrad.clamp_min_(x, 0, **c), 1, **c),
    "Tensors": lambda x, lo, hi, **c: clampgrad.clamp_(x, lo, hi, **c),
    "both": lambda x, lo, hi, **c: clampgrad.clamp_(x, 0, 1, **c),
    "a number": lambda x, lo, hi, **c: clampgrad.clamp_(x, 0, 1, **c),
    "a view": lambda x, lo, hi, **c: clampgrad.clamp_(x[1:], 0, 1, **c),
    "after another operator": lambda x, lo, hi, **c: clampgrad.clamp_(x.mul_(2), 0, 1, **c),
}


@INDUCTOR
@pytest.mark.thorough
@pytest.mark.skipif(RELEASE < (2, 13), reason="backward raises PyTorch's error there (support.md)")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("write", slow_after(2, WRITES))
def test_an_input_that_is_written(write, dtype):
    """What it was is kept as a mask, or as a copy: the input itself is gone.

    PyTorch's own in-place clamp raises an error in backward before 2.15 after some calls.
    """
    tensors = write == "Tensors"
    given = random_with_ties(3, 9, dtype=dtype, nan=False)
    if write == "a number":
        given = given[:, 4]  # (x, lo, hi) where it lies between the others

    def f(x, lo, hi):
        for convention in EXACT if tensors else CONVENTIONS:
            for _ in range(2):
                WRITES[write](x, lo, hi, gradient=convention)
        return x * 1

    def gradients(f, *differentiated):
        leaves = [t.clone().requires_grad_(w) for t, w in zip(given, differentiated)]
        f(*[t * 1 for t in leaves]).sum().backward()
        return [t.grad for t, w in zip(leaves, differentiated) if w]

    for differentiated in [(True, False, False)] + [(True, True, True)] * tensors:
        torch._dynamo.reset()
        with OPERATORS:
            actual = gradients(torch.compile(f, fullgraph=True), *differentiated)
        assert_same(actual, gradients(f, *differentiated))


@pytest.mark.skipif(not (2, 13) <= RELEASE < (2, 15), reason="only there it is needed")
@pytest.mark.compiled("the portable one keeps masks")
@pytest.mark.parametrize("write", ["numbers", "Tensors"])
@pytest.mark.parametrize("made, copies", [(torch.clone, 1), (lambda x: x * 2, 0), (torch.sin, 0)])
def test_only_an_input_that_is_written_is_copied(made, copies, write):
    """By flip, which no pass of the compiler removes."""

    def f(x):
        write_in = WRITES["a number" if write == "numbers" else write]
        return write_in(made(x), torch.zeros_like(x), torch.ones_like(x)) * 1

    forward, _ = called_in_graphs(f, torch.ones(3))
    assert forward.count(torch.ops.aten.flip.default) == copies


class Square(torch.nn.Module):
    """As torch.nn.Unflatten, which Dynamo cannot compile where a default device is set."""

    def forward(self, x):
        return x.view(N, N)


@pytest.mark.parametrize("activation", [torch.nn.ReLU, torch.nn.ReLU6], ids=str)
def test_modules_in_a_model(activation):
    """What docs/performance.md says of whole models."""
    twin, norm = getattr(clampgrad.nn, activation.__name__), torch.nn.LayerNorm(N)
    views = torch.nn.Flatten(0), Square()
    for module in (activation(), twin()):
        # Computed again after a normalisation.
        model = torch.nn.Sequential(norm, module)
        assert kept(model) == pytest.approx(kept(norm), abs=0.1)
        # A mask, also for relu, because what the product keeps is a view.
        assert kept(torch.nn.Sequential(module, *views)) == 5
    assert kept(twin(inplace=True)) == 5
    assert kept(activation(inplace=True)) == (4 if activation is torch.nn.ReLU else 5)


@pytest.mark.parametrize("inplace", slow_after(1, [False, True]))
@pytest.mark.parametrize(
    "activation", slow_after(2, [torch.nn.ReLU6, torch.nn.ReLU, torch.nn.Hardtanh]), ids=str
)
def test_a_converted_model_keeps_no_more(activation, inplace):
    views = torch.nn.Flatten(0), Square()
    gained = []
    for around in (
        lambda m: [m],
        lambda m: [torch.nn.LayerNorm(N), m],
        lambda m: [m, *views],
        lambda m: [m, torch.nn.Tanh()],
    ):
        model = torch.nn.Sequential(*around(activation(inplace=inplace)))
        before = kept(model)
        for example in ({}, {"example_inputs": torch.randn(N, N, requires_grad=True) * 1}):
            gained.append(before - kept(clampgrad.nn.convert(model, **example)))
    assert min(gained) >= 0, gained
    assert max(gained) > 0 or inplace or activation is torch.nn.ReLU


# A tie that is shared, a pseudo-gradient, and a tie that is x's.
EACH_PART_FIRST = dict.fromkeys(["half", "with_grad", "inclusive", *CONVENTIONS])
BOUNDS = [(None, 1), (0.1, None), (0, 1), (0.1, 0.1), (1, 0)]
BOUNDS += [(-torch.inf, 0), (0, torch.inf), *[(torch.nan, None)][IGNORES_NAN:]]


@pytest.mark.parametrize("dtype", slow_after(1, [torch.float32, torch.bfloat16]), ids=str)
@pytest.mark.parametrize("convention", slow_after(3, EACH_PART_FIRST))
def test_the_gradient_is_that_of_eager_mode(convention, dtype):
    """Also if bounds are equal, crossed, infinite or NaN, and if the
    result is changed afterwards."""
    x = torch.cat([random_with_ties(64, dtype=dtype), torch.tensor([0.1, 0.2], dtype=dtype)])
    g = random_with_ties(66, seed=1, dtype=dtype)

    def f(x):
        out = []
        for maximize in (False, True)[: 1 + (convention in ("with_grad", "restoring"))]:
            keywords = {"gradient": convention, "maximize": maximize}
            for lo, hi in BOUNDS:
                y = clampgrad.clamp(x * 1, lo, hi, **keywords)
                z = x * 1
                clampgrad.clamp_(z[1:], lo, hi, **keywords)
                out.append(clampgrad.clamp_(x * 1, lo, hi, **keywords) + y.mul_(2) + z)
        return torch.stack(out)

    compiled = torch.compile(f, backend=BACKEND, fullgraph=True)
    check_rows(compiled, f, [x], g)
