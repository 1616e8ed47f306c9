"""torch.compile: whole graphs of aten operators, forward and backward, with the eager gradient."""

import operator
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import clampgrad
from oracle import CLAMPS, CONVENTIONS, EXACT, gradient_of_x
from testing.cases import INDUCTOR
from testing.comparing import BOUNDS, assert_same, check_rows, eager, random_with_ties
from testing.graph_caches import no_graph_caches
from testing.matrix.reference import ARGUMENTS


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


CASES = [*product(CLAMPS, (clampgrad, torch.ops.clampgrad), ("", "_"), ["half"])]
CASES += product(["clamp"], [clampgrad], ("", "_"), [c for c in CONVENTIONS if c != "half"])


@pytest.mark.parametrize("operator, namespace, suffix, convention", CASES)
def test_forward_and_backward(operator, namespace, suffix, convention):
    """The gradient of eager mode, out of graphs of aten operators."""
    x, g = random_with_ties(64), random_with_ties(64, seed=1)
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


@pytest.mark.parametrize(
    "operators", [["clamp_min", "clamp_max", "maximum", "fmin"], ["clamp"]], ids=len
)
def test_every_way_in_which_tensors_compare(operators, backend):
    """And each argument alone being differentiated."""
    count = len(ARGUMENTS[operators[0]])
    values = torch.tensor([0.0, 1, 2, torch.nan])
    args = [a.contiguous() for a in torch.cartesian_prod(*[values] * count).unbind(1)]

    def f(*args):
        results = []
        for call in (getattr(clampgrad, name) for name in operators):
            results += [call(*args, gradient=c) for c in EXACT]
            results += [
                call(*(a if i == j else a.detach() for j, a in enumerate(args)))
                for i in range(count)
            ]
        return torch.stack(results)

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    check_rows(compiled, f, args, random_with_ties(len(args[0]), seed=1))


def test_a_transform_inside(backend):
    x = random_with_ties(64)

    def slope(x, convention):
        f = partial(clampgrad.clamp, min=0, max=1, gradient=convention)
        return torch.func.vmap(torch.func.grad(f))(x)

    @torch.compile(backend=backend, fullgraph=True)
    def slopes(x):
        return [slope(x, convention) for convention in CONVENTIONS]

    for convention, actual in zip(CONVENTIONS, slopes(x)):
        assert_same(actual, gradient_of_x(convention, x, torch.ones_like(x), 0, 1))


def test_a_graph_input_changed_in_place(backend):
    refused = ("with_grad", "restoring") if backend == "inductor" else ()  # docs/support.md
    conventions = [c for c in CONVENTIONS if c not in refused]

    @torch.compile(backend=backend, fullgraph=True)
    def f(*xs):
        return [clampgrad.clamp_(x, 0, 1, gradient=c) * 2 for x, c in zip(xs, conventions)]

    x, g = random_with_ties(64), random_with_ties(64, seed=1)
    xs = [x.clone().requires_grad_() for _ in conventions]
    changed = [x.clone() for x in xs]
    gradients = torch.autograd.grad(f(*changed), xs, [g] * len(xs))
    for convention, written, gradient in zip(conventions, changed, gradients):
        assert_same(written.detach(), x.clamp(0, 1))
        assert_same(gradient, gradient_of_x(convention, x, 2 * g, 0, 1))


def kernels(f, *args):
    """How many kernels Inductor makes of f, forward and backward."""
    with no_graph_caches():
        torch._inductor.metrics.reset()
        eager(torch.compile(f, fullgraph=True), args, torch.ones_like(args[0]))
        return torch._inductor.metrics.generated_kernel_count


@INDUCTOR
@pytest.mark.parametrize("bounds", [(0, 1), (torch.zeros(64), torch.ones(64))])
def test_one_kernel_each_way(bounds):
    assert (
        kernels(lambda x: clampgrad.clamp(x, *bounds, gradient="half"), random_with_ties(64)) == 2
    )


@pytest.mark.slow
@pytest.mark.parametrize("clamp", [torch.clamp, partial(clampgrad.clamp, gradient="inclusive")])
def test_one_kernel_each_way_for_swiglu(clamp):
    """That of docs/howto/swiglu.md."""

    def swiglu(gate, up):
        gate, up = clamp(gate, max=7.0), clamp(up, -7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)

    assert kernels(swiglu, *torch.randn(2, 64, 64, dtype=torch.bfloat16)) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_number_is_rounded(dtype, backend):
    """A tie with a number that the dtype rounds up, or down, is a tie; under a pin, too."""
    bounds = (0.1, 0.3, 0.7)
    x = torch.tensor([*bounds, 0.5, torch.nan], dtype=dtype)

    def f(x):
        results = [torch.clamp(x, max=bounds[0]), torch.clamp(x, bounds[1])]
        for bound, c in product(bounds, EXACT):
            results += [clampgrad.clamp(x, max=bound, gradient=c)]
            results += [clampgrad.clamp(x, bound, gradient=c)]
        return torch.stack(results)

    with clampgrad.pin("half"):
        check_rows(torch.compile(f, backend=backend, fullgraph=True), f, [x], torch.ones_like(x))


@pytest.mark.thorough
@pytest.mark.parametrize("scalar", [np.float32, np.float64, np.int64])
def test_a_numpy_scalar_is_a_number(scalar, backend):
    """At a tie and at NaN, a Tensor would have another gradient. The value is no constant."""
    x, g = torch.tensor([-1.0, 0, 1, 2, torch.nan, 0, 1]), torch.linspace(-3, 3, 7)

    def f(x, lo, hi):
        results = [clampgrad.clamp(x, lo, hi, gradient=c) for c in CONVENTIONS]
        results += [clampgrad.clamp(x, lo, 2), clampgrad.clamp_max_(x.clone(), hi)]
        return torch.stack(results)

    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
    for lo, hi in ((0, 1), (1, 1), (1, 0)):
        expected = partial(f, lo=lo, hi=hi)
        check_rows(partial(compiled, lo=scalar(lo), hi=scalar(hi)), expected, [x], g)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"min": [0]}, "clamp"),
        ({"min": 0, "max": 1, "gradient": "with_grad", "maximize": 1}, "maximize"),
        ({"min": 0, "max": 1, "gradient": "?"}, "min_norm"),
    ],
)
def test_what_is_wrong_is_refused(wrong, message):
    compiled = torch.compile(lambda x: clampgrad.clamp(x, **wrong), backend="aot_eager")
    with pytest.raises(Exception, match=message):
        compiled(torch.ones(2, requires_grad=True))


def test_a_numpy_scalar_that_promotes_or_is_beside_a_tensor(backend):
    cases = [
        (torch.arange(3), None, np.float32(0.5)),
        (torch.tensor(5, dtype=torch.int32), None, np.float64(0.5)),
        (torch.arange(3).to(torch.uint8), None, np.int64(1)),
        (torch.zeros(3, requires_grad=True), torch.ones(3), np.float32(0.25)),
    ]
    cases += [(x, bound, other) for x, other, bound in cases]

    def f(cases):
        return [clampgrad.clamp(*args) for args in cases]

    assert_same(torch.compile(f, backend=backend)(cases), f(cases))
