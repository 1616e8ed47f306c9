"""A pin reaches the clamps that torch makes by itself."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import clampgrad
from testing.slopes import STOCK_SLOPES, STRAIGHT_THROUGH_SLOPES, slope

pytestmark = pytest.mark.thorough

COMPOSED = {
    "corrcoef": lambda x: torch.corrcoef(torch.stack([x, -x, x * x])),
    "normalize": lambda x: F.normalize(x, eps=1.0, dim=0),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x * 0, x * 0 - 1),
    "triplet_margin_with_distance_loss": lambda x: F.triplet_margin_with_distance_loss(
        x[None], x[None] * 0, x[None] * 2
    ),
}


def reached():
    return sum(clampgrad._implementation.pin_call_counts().values())


@pytest.mark.parametrize("name", COMPOSED)
def test_functions_of_torch_that_clamp_inside(name):
    before = reached()
    with clampgrad.pin("half"):
        slope(COMPOSED[name], (0.5, 0.0, -0.5))
    assert reached() > before


def test_compiled_code_does():
    torch._dynamo.reset()
    function = torch.compile(COMPOSED["margin_ranking_loss"], backend="eager")
    with clampgrad.pin("half"):
        assert slope(function, (0.0,)) == [0.5]


# ---- Graphs that are captured --------------------------------------------------------------------


class Inside(torch.nn.Module):
    def forward(self, x):
        with clampgrad.pin("straight_through"):
            return torch.clamp(x * 1, 0, 1) * 1


class Decorated(torch.nn.Module):
    @clampgrad.pin("straight_through")
    def forward(self, x):
        return torch.clamp(x * 1, 0, 1) * 1


CAPTURED = {
    "torch.export": lambda m, x: torch.export.export(m, (x,), strict=False).module(),
    "torch.jit.trace": lambda m, x: torch.jit.trace(m, (x,), check_trace=False),
    "make_fx": lambda m, x: make_fx(m)(x),
    "torch.fx": lambda m, x: torch.fx.symbolic_trace(m),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("module", [Inside, Decorated])
@pytest.mark.parametrize("how", CAPTURED)
def test_a_graph_loses_the_blocks_inside(how, module):
    inside = module()
    says_so = how in ("torch.export", "torch.jit.trace")  # support.md
    with pytest.warns(UserWarning, match="a graph") if says_so else nullcontext() as seen:
        graph = CAPTURED[how](inside, torch.tensor([-1.0, 2.0], requires_grad=True))
    files = [w.filename for w in seen or () if "a graph" in str(w.message)]
    assert module is Decorated or {*files} <= {__file__}
    assert (slope(inside), slope(graph)) == (STRAIGHT_THROUGH_SLOPES, STOCK_SLOPES)
    with clampgrad.pin("straight_through"):
        assert slope(graph) == STRAIGHT_THROUGH_SLOPES


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_the_warning_names_the_line_that_calls_a_decorated_function():
    clamp = clampgrad.pin("half")(lambda x: torch.clamp(x, 0, 1))
    calls = lambda x: clamp(x)  # noqa: E731
    with pytest.warns(UserWarning, match="is entered while a graph") as warned:
        torch.jit.trace(calls, torch.ones(1))
    lines = {(w.filename, w.lineno) for w in warned if "a graph" in str(w.message)}
    assert lines == {(__file__, calls.__code__.co_firstlineno)}


@pytest.mark.filterwarnings("error:.*is entered while a graph is captured")
def test_compiled_code_is_no_graph_that_loses_a_pin():
    function = torch.compile(Decorated(), backend="eager")
    assert slope(function) == slope(function) == STRAIGHT_THROUGH_SLOPES


# ---- Who observes the calls ----------------------------------------------------------------------


@pytest.fixture
def observed():
    """What an observer is told of: names of calls, and their results if it asks for them."""
    calls = []

    def observe(name, args):
        calls.append(name)
        if isinstance(args[0], torch.Tensor) and args[0].dim() == 0:
            return None  # no result of this call
        return calls.append

    clampgrad._implementation.pin_register_kernels()
    clampgrad._implementation.pin_observe(observe)
    yield calls
    clampgrad._implementation.pin_observe(None)


def test_an_observer_sees_each_call_and_its_result(observed):
    results = [torch.clamp(torch.ones(1), 2.0), torch.maximum(torch.ones(1), torch.zeros(1))]
    assert observed == ["aten::clamp", results[0], "aten::maximum", results[1]]


def test_an_observer_of_an_operator_without_a_result(observed):
    xs = [torch.ones(1)]
    torch._foreach_clamp_min_(xs, 2.0)
    assert xs[0] == 2 and observed == ["aten::_foreach_clamp_min_", None]


def test_an_observer_sees_what_a_call_calls_only_if_it_wants_no_result(observed):
    gradient = torch.func.grad(lambda x: x.clamp(0.0, 1.0).sum())
    gradient(torch.ones(1))
    assert observed[::2] == ["aten::clamp"]  # not the one that this level calls below
    observed.clear()
    gradient(torch.ones(()))
    assert observed == ["aten::clamp"] * 2
