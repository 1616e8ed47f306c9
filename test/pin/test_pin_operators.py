"""Operators that call functions have the gradient of the pin around their
forward, wherever backward runs.

Most of them call the function again in backward, and differentiate it only there.
"""

from itertools import accumulate

import pytest
import torch
import torch.nn.attention.flex_attention as attention

import clampgrad
from oracle import gradient_of_x
from testing.comparing import assert_same
from testing.releases import RELEASE

if RELEASE < (2, 11):
    pytest.skip("some do not exist, or have no derivative yet", allow_module_level=True)
from torch._higher_order_ops import associative_scan, cond, map, scan, while_loop

pytestmark = pytest.mark.slow

X = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, torch.nan])
G = torch.tensor([3.0, -6.0, 2.0, 4.0, -1.0, 5.0])
ONE = torch.ones(())
TIMES = torch.zeros((), dtype=torch.int64)

# Each applies f to every element of x.
OPERATORS = {
    "cond": lambda f, x: cond(torch.tensor(True), f, torch.neg, (x,)),
    "map": lambda f, x: map(f, x),
    "scan": lambda f, x: scan(lambda carry, e: (carry + 1, f(e)), ONE, x)[1],
    "while_loop": lambda f, x: while_loop(
        lambda n, x: n < 1, lambda n, x: (n + 1, f(x)), (TIMES, x)
    )[1],
}
PINS = ("half", "straight_through")
CANNOT_SCAN = (((2, 11), "aot_eager"), ((2, 11), "inductor"), ((2, 12), "aot_eager"))


def pinned(x):
    return torch.clamp(x, 0, 1) * 1


@pytest.fixture(autouse=True)
def fresh_compiler():
    with clampgrad.pin(None):
        torch._dynamo.reset()


def compiled(f, backend):
    return torch.compile(f, backend=backend, fullgraph=True) if backend else f


EACH = pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"], indirect=True)


@EACH
@pytest.mark.parametrize("pin", [None, *PINS])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_pin_of_the_forward(name, pin, backend):
    """Backward knows it, or that there was none."""
    if name == "scan" and (RELEASE, backend) in CANNOT_SCAN:
        pytest.skip(
            "torch cannot differentiate it, pinned or not: what is scanned might be aliased"
        )
    x = X.clone().requires_grad_()
    with clampgrad.pin(pin):
        y = compiled(OPERATORS[name], backend)(pinned, x)
        (expected,) = torch.autograd.grad(pinned(x), x, G)
    with clampgrad.pin("min_norm"):
        # Inductor's backward of cond writes into the gradient that it is given, without a pin too.
        assert_same(torch.autograd.grad(y, x, G.clone())[0], expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_pin_inside_is_an_error(name):
    """As docs/pin.md says, of a function that it decorates and of a block."""

    def block(x):
        with clampgrad.pin("half"):
            return pinned(x)

    for f in (clampgrad.pin("half")(pinned), block):
        with pytest.raises(Exception, match="(?i)graph break|captured|trace"):
            OPERATORS[name](f, X.clone().requires_grad_())


@EACH
def test_a_running_maximum(backend):
    """At a tie with the maximum so far, both are being differentiated."""

    def running(x):
        return associative_scan(torch.maximum, x, 0, combine_mode="generic")

    run = compiled(running, backend)
    values = torch.tensor([[1.0], [1.0], [0.0], [2.0], [2.0]])
    g = torch.tensor([[3.0], [-6.0], [2.0], [4.0], [12.0]])
    for pin in ("half", "inclusive"):
        x = values.clone().requires_grad_()
        with clampgrad.pin(pin):
            one_by_one = torch.stack([*accumulate(x, torch.maximum)])
            actual, expected = (torch.autograd.grad(y, x, g)[0] for y in (run(x), one_by_one))
        assert_same(actual, expected)


@pytest.mark.parametrize("backend", [None, "aot_eager"])  # Inductor has a kernel of its own
@pytest.mark.parametrize("pin", [None, *PINS])
def test_a_score_of_flex_attention(pin, backend, monkeypatch):
    # torch has no backward of it on a CPU, but the operator has one, which a GPU takes too.
    monkeypatch.setattr(attention, "_validate_device", lambda *_: None)
    given = [torch.randint(-2, 3, (1, 1, 8, 4)).float().requires_grad_() for _ in range(4)]

    def attended(query, key, value, score_mod, scale):
        return torch.softmax(score_mod(query @ key.mT * scale), -1) @ value

    def gradients(attend):
        with clampgrad.pin(pin):
            y = attend(*given[:3], score_mod=lambda s, *_: torch.clamp(s, -1, 1), scale=1.0)
        with clampgrad.pin("inclusive"):
            return torch.autograd.grad(y, given[:3], given[3].detach())

    flex = compiled(attention.flex_attention, backend)
    torch.testing.assert_close(gradients(flex), gradients(attended))


@pytest.mark.parametrize("name", OPERATORS)
def test_functions_of_ours(name):
    for convention in ("half", "with_grad"):
        x = X.clone().requires_grad_()
        y = OPERATORS[name](lambda x: clampgrad.clamp(x, 0, 1, gradient=convention) * 1, x)
        assert_same(torch.autograd.grad(y, x, G)[0], gradient_of_x(convention, X, G, 0, 1))


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "cond"])
def test_a_second_derivative(name):
    """A pin decides it for our functions too: the graph that torch differentiates
    twice has only ATen operators."""

    def clamp(x):
        return clampgrad.clamp(x * 1, 0, 1, gradient="straight_through") * x

    def second(apply, f):
        x = X.nan_to_num(3).requires_grad_()
        (first,) = torch.autograd.grad(apply(f, x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    expected = second(lambda f, x: f(x), clamp)
    assert not torch.equal(second(OPERATORS[name], clamp), expected), "a limit is gone: support.md"
    with clampgrad.pin("straight_through"):
        for f in (clamp, lambda x: torch.clamp(x * 1, 0, 1) * x):
            assert_same(second(OPERATORS[name], f), expected)
