"""torch.compile: whole graphs of aten operators, forward and backward, with the eager gradient."""

import operator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import clampgrad
from common import BOUNDS, OPERATORS, assert_same, eager, tied
from matrix.inputs import inputs
from matrix.reference import ARGUMENTS
from matrix.run import Cell, check_all
from oracle import CONVENTIONS, EXACT, gradient_of_x


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def recording(graphs):
    """A backend that keeps the graphs of forward and backward and runs them as they are."""

    def keep(graph, inputs):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=keep, bw_compiler=keep)


def foreign(graph):
    """The calls of a graph that are no aten operators."""
    calls = {node.target for node in graph.graph.nodes if node.op not in ("placeholder", "output")}
    return [t for t in calls - {operator.getitem} if getattr(t, "namespace", "?") != "aten"]


CASES = [*product(OPERATORS, (clampgrad, torch.ops.clampgrad), ("", "_"), ["half"])]
CASES += product(["clamp"], [clampgrad], ("", "_"), [c for c in CONVENTIONS if c != "half"])


@pytest.mark.parametrize("operator, namespace, suffix, convention", CASES)
def test_forward_and_backward(operator, namespace, suffix, convention):
    """The gradient of eager mode, out of graphs of aten operators."""
    x, g = tied(64), tied(64, seed=1)
    graphs, bounds = [], BOUNDS[operator]

    def f(x):
        x = x.clone() if suffix else x
        return getattr(namespace, operator + suffix)(x, *bounds.values(), gradient=convention)

    compiled = torch.compile(f, backend=recording(graphs), fullgraph=True)
    (gradient,) = eager(compiled, [x], g)
    assert_same(gradient, gradient_of_x(convention, x, g, **bounds))
    assert_same(compiled(x), f(x))
    assert len(graphs) == 3  # forward, backward, and the one without a gradient
    assert [foreign(graph) for graph in graphs] == [[], [], []]


@pytest.mark.parametrize("operator", ARGUMENTS)
def test_every_row_of_tensors(operator):
    kinds = inputs(operator)
    cells = [Cell(operator, kinds["Tensors"], convention) for convention in EXACT]
    cells += [Cell(operator, kinds[f"Tensors: {name} alone"]) for name in ARGUMENTS[operator]]
    check_all(replace(cell, context="compile, aot_eager") for cell in cells)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_the_middle_of_a_graph(convention):
    """Partitioning handles an input changed in place, a value used twice, and a sum."""

    def f(x):
        y = x * 2
        clampgrad.clamp_(y, 0, 1, gradient=convention)
        z = clampgrad.clamp(y + x, 0, 2, gradient=convention)
        y.mul_(3)
        return (y * z).sum()

    x = tied(64, nan=False).clamp(-9, 9)
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    one = torch.tensor(1.0)
    assert_same(eager(compiled, [x], one)[0], eager(f, [x], one)[0])


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_transform_inside(convention):
    x = tied(64)
    f = torch.func.grad(partial(clampgrad.clamp, min=0, max=1, gradient=convention))
    slope = torch.compile(torch.func.vmap(f), backend="aot_eager", fullgraph=True)
    assert_same(slope(x), gradient_of_x(convention, x, torch.ones_like(x), 0, 1))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_graph_input_changed_in_place(convention):
    f = partial(clampgrad.clamp_, min=0, max=1, gradient=convention)
    compiled = torch.compile(lambda x: f(x) * 2, backend="aot_eager", fullgraph=True)
    x, g = tied(64), tied(64, seed=1)
    leaf = x.clone().requires_grad_()
    changed = leaf.clone()
    (gradient,) = torch.autograd.grad(compiled(changed), leaf, g)
    assert_same(changed.detach(), x.clamp(0, 1))
    assert_same(gradient, gradient_of_x(convention, x, 2 * g, 0, 1))


def test_inductor():
    """One kernel each way, and the gradient of eager mode, at ties too."""
    x, g = tied(64), tied(64, seed=1)
    half = torch.compile(lambda x: clampgrad.clamp(x, 0, 1, gradient="half"), fullgraph=True)
    # Its cache does not know our formulas: a stale entry would test yesterday's.
    with torch._inductor.config.patch(force_disable_caches=True):
        torch._inductor.metrics.reset()
        (gradient,) = eager(half, [x], g)
        assert torch._inductor.metrics.generated_kernel_count == 2
        assert_same(gradient, gradient_of_x("half", x, g, 0, 1))

        def f(x):
            return torch.stack([clampgrad.clamp(x, 0, 1, gradient=c) for c in CONVENTIONS])

        compiled = torch.compile(f, fullgraph=True)
        for chosen in torch.eye(len(CONVENTIONS), dtype=torch.bool):
            gs = torch.where(chosen[:, None], g, 0)  # g for one convention, 0 for the others
            assert_same(eager(compiled, [x], gs)[0], eager(f, [x], gs)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_inductor_rounds_a_bound(dtype):
    """A tie with a number that the dtype rounds up, or down, is a tie."""
    bounds = (0.1, 0.3, 0.7)
    x = torch.tensor(bounds, dtype=dtype)

    def f(x):
        found = [clampgrad.clamp(x, max=b, gradient=c) for b in bounds for c in EXACT]
        return torch.stack(
            [*found, *(clampgrad.clamp(x, b, gradient=c) for b in bounds for c in EXACT)]
        )

    with torch._inductor.config.patch(force_disable_caches=True):
        compiled = torch.compile(f, fullgraph=True)
        for of_row in torch.eye(6 * len(EXACT), dtype=dtype)[:, :, None].expand(-1, -1, 3):
            assert_same(eager(compiled, [x], of_row)[0], eager(f, [x], of_row)[0])


@pytest.mark.parametrize("scalar", [np.float64, np.float32, np.int64])
def test_a_numpy_scalar_is_a_number(scalar):
    """At a tie and at NaN, a Tensor would have another gradient. The value is no constant."""
    x, g = torch.tensor([-1.0, 0, 1, 2, torch.nan, 0, 1]), torch.linspace(-3, 3, 7)

    def f(x, lo, hi):
        found = [clampgrad.clamp(x, lo, hi, gradient=c) for c in CONVENTIONS]
        found += [clampgrad.clamp(x, lo, 2), clampgrad.clamp_max_(x.clone(), hi)]
        return torch.stack(found)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for lo, hi in ((0, 1), (1, 1), (1, 0)):
        for of_row in torch.eye(len(CONVENTIONS) + 2)[:, :, None] * g:
            (expected,) = eager(lambda x: f(x, lo, hi), [x], of_row)
            (found,) = eager(lambda x: compiled(x, scalar(lo), scalar(hi)), [x], of_row)
            assert_same(found, expected)


@pytest.mark.parametrize("wrong, message", [
    ({"min": [0]}, "clamp"),
    ({"min": 0, "max": 1, "gradient": "with_grad", "maximize": 1}, "maximize"),
    ({"min": 0, "max": 1, "gradient": "?"}, "min_norm"),
])  # fmt: skip
def test_what_is_wrong_is_refused(wrong, message):
    compiled = torch.compile(lambda x: clampgrad.clamp(x, **wrong), backend="aot_eager")
    with pytest.raises(Exception, match=message):
        compiled(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("x, other, bound", [
    (torch.arange(3), None, np.float32(0.5)),
    (torch.tensor(5, dtype=torch.int32), None, np.float64(0.5)),
    (torch.arange(3).to(torch.uint8), None, np.int64(1)),
    (torch.zeros(3, requires_grad=True), torch.ones(3), np.float32(0.25)),
])  # fmt: skip
def test_a_numpy_scalar_that_promotes_or_is_beside_a_tensor(x, other, bound):
    compiled = torch.compile(lambda *args: clampgrad.clamp(*args) * 1, backend="aot_eager")
    assert_same(compiled(x, bound, other), clampgrad.clamp(x, bound, other))
    assert_same(compiled(x, other, bound), clampgrad.clamp(x, other, bound))
