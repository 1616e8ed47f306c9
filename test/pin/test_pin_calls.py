"""What a pin reaches, and what it does not."""

from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import decorators
from torch._dynamo.testing import CompileCounterWithBackend

import clampgrad
from clampgrad._pin import compiled_code
from clampgrad._torch.replacements import apply_replacements
from testing.cases import INDUCTOR
from testing.comparing import Dispatched, assert_same
from testing.releases import RELEASE
from testing.slopes import HALF_SLOPES, STOCK_SLOPES, slope

ALL = [1, 0]


@pytest.fixture
def x():
    return torch.tensor([0.0, 2.0], requires_grad=True)


def clamp(x):
    return torch.clamp(x, 0, 1)


class Again(torch.autograd.Function):
    """Calls a function, and calls it again in backward."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        return torch.autograd.grad(y, x, g)[0], None


def test_the_backward_of_a_function_is_pinned():
    with clampgrad.pin("half"):
        assert slope(lambda x: Again.apply(x, clamp)) == HALF_SLOPES
        assert slope(lambda x: Again.apply(x, clampgrad.pin("inclusive")(clamp))) == ALL
        assert slope() == HALF_SLOPES


def test_another_implementation_of_checkpoints_can_remember(x):
    with clampgrad.pin("half"):
        y = Again.apply(x, clampgrad.pin.remember(clamp))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == HALF_SLOPES


def test_what_a_pinned_clamp_calls_sees_the_pin(x):
    """A saved-tensor hook and a mode run inside the operator, and may remember the pin."""
    seen = []

    def see(t=None):
        seen.append((clampgrad.pin.current(), clampgrad.pin.remember(slope)))
        return t

    zeros, ones = torch.zeros(2), torch.ones(2)
    hooks = torch.autograd.graph.saved_tensors_hooks(see, lambda t: t)
    for context in (hooks, Dispatched(see)):
        for f in (clamp, lambda x: torch.clamp(x, zeros, ones), torch.relu):
            seen.clear()
            with clampgrad.pin("half"), context:
                f(x)
            assert seen
            assert all(name == "half" and run() == HALF_SLOPES for name, run in seen)


ATEN = torch.ops.aten
ONES = torch.ones(4)
INSIDE = [0, 1, 0, 0]
ABOVE = [0, 0, 0, 1]
BELOW = [1, 1, 0, 0]
SPELLINGS = {
    "aten": (lambda x: ATEN.clamp(x, 0, 1), INSIDE),
    "aten.clamp(self=)": (lambda x: ATEN.clamp(self=x, min=0, max=1), INSIDE),
    "aten.maximum(self=)": (lambda x: ATEN.maximum(self=x, other=ONES), ABOVE),
    "clip": (lambda x: torch.clip(x, 0, 1), INSIDE),
    "Tensor.clip": (lambda x: x.clip(0, 1), INSIDE),
    "clip_": (lambda x: x.clone().clip_(0, 1), INSIDE),
    "max of two": (lambda x: torch.max(x, ONES), ABOVE),
    "min of two": (lambda x: torch.min(x, ONES), BELOW),
    "clamp_min in C++": (
        lambda x: F.margin_ranking_loss(x, 0 * ONES, -ONES, reduction="none"),
        [0, 1, 1, 1],
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_way_to_call_is_pinned(name):
    function, expected = SPELLINGS[name]
    with clampgrad.pin("min_norm"):
        assert slope(function, (0.0, 0.5, 1.0, 2.0)) == expected


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("pin", [None, "half"])
def test_what_vmap_writes_in_place(pin):
    """After the first pin, what torch writes, and its errors."""

    def clamp(x, bound):
        return x.clamp_(bound, bound + 1)

    with clampgrad.pin("half"), clampgrad.pin(pin):
        once = torch.full((1, 2), 5.0)
        assert torch.vmap(clamp)(once.expand(3, 2), torch.zeros(3, 2)).eq(1).all()
        assert once.eq(1).all()
        with pytest.raises(RuntimeError, match="output with shape|more dimensions than self"):
            torch.vmap(clamp)(torch.full((3, 2), 5.0), torch.zeros(3, 1, 2))

    x = torch.tensor([-1.0, 0, 0.5, 1], requires_grad=True)
    bounds = torch.tensor([[0.0, 0, 1], [1, 2, -1]])
    with clampgrad.pin("installed"), clampgrad.pin("installed" if pin else None):
        windows = torch.vmap(torch.clamp_)(x.clone().unfold(0, 3, 1), bounds)
    assert torch.autograd.grad(windows.sum(), x)[0].tolist() == [0, 0, 0, 1]


BOUNDS_OF = {
    "clamp_": (0, 1),
    "clamp_, Tensors": (0, 1),
    "clamp_min_": (0, None),
    "clamp_max_, a Tensor": (None, 1),
}
IN_PLACE = {
    "clamp_": lambda a: a.clone().clamp_(0, 1),
    "clamp_, Tensors": lambda a: a.clone().clamp_(torch.zeros(5), torch.ones(5)),
    "clamp_min_": lambda a: a.clone().clamp_min_(0),
    "clamp_max_, a Tensor": lambda a: a.clone().clamp_max_(torch.ones(5)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("form", IN_PLACE)
@pytest.mark.parametrize("pin", [None, "half"])
def test_in_place_where_the_innermost_vmap_batches_nothing(form, pin):
    """After the first pin of a process, and under one."""
    x = torch.tensor([[-1.0, 0, 0.5, 1, 2], [2, 1, 0, 0.5, -1]])

    def nested(a):
        return torch.vmap(lambda b: IN_PLACE[form](a) + b)(torch.ones(3, 5))

    with clampgrad.pin("half"), clampgrad.pin(pin):
        expected = x.clamp(*BOUNDS_OF[form]).unsqueeze(1).expand(2, 3, 5) + 1
        assert_same(torch.vmap(nested)(x), expected)
        hessians = torch.vmap(torch.func.hessian(lambda a: nested(a).square().sum()))(x)
    inside = (x > 0) & (x < 1)
    assert (hessians.diagonal(0, 1, 2)[inside] == 6).all()


def test_a_dispatch_mode_sees_the_operator_that_was_called(x):
    """A policy of selective checkpointing goes by it."""
    for call in (torch.clamp, clampgrad.clamp):
        seen = []
        with clampgrad.pin("half"), Dispatched(seen.append):
            call(x.clone().requires_grad_(), torch.zeros(2))
        assert torch.ops.aten.clamp.Tensor in seen


@pytest.mark.compiled("the portable one finds positions by `to`")
@pytest.mark.parametrize(
    "bounds", [(0, 1), (torch.zeros(3), torch.ones(3))], ids=["numbers", "Tensors"]
)
def test_a_dispatch_mode_sees_no_composite_operator(bounds):
    """In place: a mode with a table of operators has none of those, and torch shows it none."""
    x, seen = torch.zeros(3, requires_grad=True), []
    with clampgrad.pin("half"), Dispatched(seen.append):
        y = (x * 1).clamp_(*bounds)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert not [f for f in seen if has_kernel(f.name(), "CompositeImplicitAutograd")] and seen
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0.5] * 3


@pytest.mark.parametrize("name", ["allow_in_graph", "leaf_function"])
def test_what_dynamo_takes_whole(name):
    if name == "leaf_function" and (not hasattr(decorators, name) or RELEASE == (2, 11)):
        pytest.skip("torch does not have it yet, or cannot compile it")
    f = getattr(decorators, name)(lambda x: torch.clamp(x, 0, 1))
    if name == "leaf_function":
        f.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: f(x), backend="aot_eager", fullgraph=True)
    for pin, expected in (("half", HALF_SLOPES), (None, STOCK_SLOPES)):
        with clampgrad.pin(pin):
            assert slope(compiled) == expected


LISTS = {
    "a number": lambda operator, xs: operator(xs, 1.0),
    "by keyword": lambda operator, xs: operator(scalars=[1.0], self=xs),
    "Tensors": lambda operator, xs: operator(xs, [torch.ones(2)]),
    "a Tensor requires grad": lambda operator, xs: operator([x.detach() for x in xs], xs),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("operator", ["clamp_min", "clamp_max", "maximum", "minimum"])
def test_no_pin_reaches_a_list(x, operator, suffix, name):
    """It raises an error where a gradient is recorded, whoever calls it."""
    for of in (torch, torch.ops.aten):
        call = partial(LISTS[name], getattr(of, f"_foreach_{operator}{suffix}"))
        pin = clampgrad.pin("half")
        with pin, pytest.raises(RuntimeError, match=f"a list.*_foreach_{operator}{suffix},"):
            call([x * 1])
        with pin, torch.no_grad():
            call([x.detach().clone()])
        with pin, clampgrad.pin(None), suppress(NotImplementedError):  # in place with numbers
            call([x * 1])


TRANSFORMS = {
    "nothing": lambda f, x: f(x),
    "torch.func.vmap": lambda f, x: torch.func.vmap(f)(x[None]),
    "torch.func.grad": lambda f, x: torch.func.grad(f)(x),
    "torch.func.jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
}


@pytest.mark.parametrize("around", TRANSFORMS)
def test_a_list_that_is_not_differentiated(around):
    """Optimizers and clipping, also inside transforms that differentiate something else."""
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([p], amsgrad=True, foreach=True)

    def step(x):
        p.grad = torch.full((3,), 5.0)
        torch.nn.utils.clip_grad_value_([p], 1.0, foreach=True)
        optimizer.step()
        return x.sum()

    with clampgrad.pin("inclusive"):
        TRANSFORMS[around](step, torch.ones(2))
    assert p.grad.tolist() == [1, 1, 1] and p.detach().allclose(torch.tensor(0.999))


@pytest.mark.parametrize("around", ["torch.func.grad", "torch.func.jvp", "compiled"])
def test_a_list_is_refused_inside_of(around, x):
    def call(x):
        return torch._foreach_clamp_min([x], 0.0)[0].sum()

    with clampgrad.pin("half"), pytest.raises(RuntimeError, match="no pin reaches a list"):
        if around == "compiled":
            torch.compile(call, backend="aot_eager")(x)
        else:
            TRANSFORMS[around](call, x.detach())


def test_a_pseudo_gradient_leaves_a_list_of_maxima_alone(x):
    with clampgrad.pin("restoring", maximize=True):
        assert slope(lambda x: torch._foreach_maximum([x], 1.0)[0], (0.0, 1.0, 2.0)) == [0, 0.5, 1]
        with pytest.raises(RuntimeError, match="no pin reaches a list"):
            torch._foreach_clamp_min([x], 1.0)


@pytest.mark.parametrize(
    "backend",
    ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)],
    indirect=True,
)
def test_code_is_compiled_once_for_each_pin(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(lambda x: torch.clamp(x, 0, 1) * 1, backend=counter)
    for _ in range(2):
        for pin, expected in ((None, STOCK_SLOPES), ("half", HALF_SLOPES), ("inclusive", ALL)):
            with clampgrad.pin(pin):
                assert slope(compiled) == expected, pin
    assert counter.frame_count == 3
    clampgrad.set_pin("half")
    assert slope(compiled) == HALF_SLOPES
    clampgrad.set_pin(None)
    assert slope(compiled) == STOCK_SLOPES


@INDUCTOR
@pytest.mark.compiled("torch's own call runs in the portable one, which guards nothing")
def test_a_number_that_changes_where_nothing_is_differentiated(x):
    """It is guarded under a pin; up to 2.14, torch alone may keep its value without a guard."""

    def f(x, n):
        return torch.clamp(x, max=2 * n) + x * n

    # Operators are called, and no C++ is compiled: this is about the guard.
    operators = torch._inductor.config.patch(fallback_by_default=True)
    with operators, torch._inductor.utils.fresh_inductor_cache(), clampgrad.pin("half"):
        compiled = torch.compile(f)
        for n in (0.25, 0.75, 0.5, 1.0):
            assert_same(compiled(x.detach(), n), f(x.detach(), n))


def test_where_the_global_state_has_no_guard_of_its_own(monkeypatch):
    """Before 2.10: every frame has one for the grad mode, and a guard has no stack."""
    guards = []

    class GuardBuilder:
        check_fn_manager = SimpleNamespace(output_graph=SimpleNamespace())
        guard_manager = SimpleNamespace(
            root=SimpleNamespace(add_lambda_guard=lambda *guard: guards.append(guard))
        )

        def GRAD_MODE(self, guard):
            pass

    monkeypatch.setattr("torch._dynamo.guards.GuardBuilder", GuardBuilder)
    replacements = compiled_code.guard_compiled_code(torch._dynamo.guards)
    with apply_replacements(replacements), clampgrad.pin("half"):
        GuardBuilder().GRAD_MODE(SimpleNamespace())
        ((check, says),) = guards
        assert check({}) and "'half'" in says[0]
    assert not check({})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.clamp(x, 0, 1),
        lambda x: torch.clamp(x, torch.zeros(2), torch.ones(2)),
        lambda x: torch.clamp_min(x, torch.zeros(2)),
        lambda x: torch.maximum(x, torch.zeros(2)),
        lambda x: (x * 1).clamp_(0, 1),
    ],
)
@pytest.mark.parametrize("gradient", ["min_norm", "inclusive", "half"])
def test_a_call_is_counted_once(call, gradient):
    """`clampgrad run -v` says how many calls a pin reached."""
    before = sum(clampgrad._implementation.pin_call_counts().values())
    with clampgrad.pin(gradient):
        call(torch.ones(2, requires_grad=True))
    assert sum(clampgrad._implementation.pin_call_counts().values()) == before + 1
