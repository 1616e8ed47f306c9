"""A pin gives aten's own clamp and its family a named gradient,
whoever calls it, and undoes itself.

The pinned forms of testing/matrix check that it is the gradient of the table, element for element.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from clampgrad import _implementation
from clampgrad._pin import state
from oracle import CONVENTIONS, EXTREMA, PSEUDO, gradient_of_x
from testing.comparing import assert_same, eager, random_with_ties
from testing.matrix.inputs import inputs
from testing.matrix.run import Cell, check_all
from testing.processes import python
from testing.slopes import HALF_SLOPES, SLOPE_SCRIPT, STOCK_SLOPES, STRAIGHT_THROUGH_SLOPES, slope

INCLUSIVE = [1, 0]


def test_kernels_are_registered_once():
    """At the first pin; later pins write to no table that other threads read. Where nothing is
    pinned, torch records its own nodes."""
    with clampgrad.pin("half"):
        names = _implementation.pin_register_kernels()
    before = [torch._C._dispatch_dump_table(name) for name in names]
    with clampgrad.pin("inclusive"):
        assert [torch._C._dispatch_dump_table(name) for name in names] == before
    assert _implementation.pin_register_kernels() == names and "aten::clamp.Tensor" in names
    x = torch.zeros(2, requires_grad=True)
    assert torch.clamp(x, 0, 1).grad_fn.name() == "ClampBackward1"
    assert torch.maximum(x, x).grad_fn.name() == "MaximumBackward0"


def test_another_autograd_kernel_of_an_operator():
    """One that is there already is an error at the first pin: the operator is not skipped
    silently, and nothing is registered until that kernel is gone. One that comes later replaces
    the pin's (docs/support.md)."""
    code = """if True:
        registered = lambda: torch._C._dispatch_dump("aten::clamp")
        before = registered()
        import clampgrad
        library = torch.library.Library("aten", "IMPL")
        library.impl("fmin", lambda *_: None, "AutogradPrivateUse1")  # one of the last
        try:
            clampgrad.set_pin("half")
            raise SystemExit("no error")
        except RuntimeError as error:
            assert "aten::fmin has an autograd kernel of its own at AutogradPrivateUse1" in str(error)
        assert registered() == before and clampgrad.pin.current() is None
        library._destroy()
        clampgrad.set_pin("half")
        assert slope(clamp) == HALF_SLOPES
        library = torch.library.Library("aten", "IMPL")
        try:
            library.impl("clamp", lambda x, lo, hi: x * 7, "AutogradCPU")
        except RuntimeError as error:  # older releases refuse a second kernel in Python
            assert "already a kernel registered from python" in str(error)
            raise SystemExit
        assert slope(clamp) == [7, 7] and clampgrad.pin.current() == "half"
        library._destroy()
        assert slope(clamp) == HALF_SLOPES
    """
    python("-c", SLOPE_SCRIPT + code)


# ---- Which gradient ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convention, maximize",
    [(c, m) for c in PSEUDO for m in (False, True) if (c, m) != ("straight_through", True)],
)
def test_a_pseudo_gradient_pins_the_clamps_alone(convention, maximize):
    x, y, g = random_with_ties(500), random_with_ties(500, seed=1), random_with_ties(500, seed=2)
    own = {op: eager(getattr(torch, op), [x, y], g) for op in EXTREMA}
    expected = gradient_of_x(convention, x, g, 0, 1, maximize=maximize)
    with clampgrad.pin(convention, maximize=maximize):
        assert_same(eager(lambda x: torch.clamp(x, 0, 1), [x], g)[0], expected)
        for op in EXTREMA:
            assert_same(eager(getattr(torch, op), [x, y], g), own[op])


@pytest.mark.parametrize("pin", [None, *CONVENTIONS])
def test_clamp_in_place_with_tensors_under_vmap(pin):
    """torch's loop over samples would count x as differentiated from the second sample on."""
    x = torch.tensor([-1.0, 0, 0.5, 1, 2]).expand(3, 5)
    lo, hi = torch.zeros(5, requires_grad=True), torch.ones(5, requires_grad=True)
    with clampgrad.pin(pin):
        expected = torch.autograd.grad(torch.clamp(x, lo, hi).sum(), (lo, hi))
        y = torch.func.vmap(lambda x: x.clone().clamp_(lo, hi))(x)
        assert_same(torch.autograd.grad(y.sum(), (lo, hi)), expected)
        assert_same(y.detach(), x.clamp(0, 1))
        with pytest.raises(RuntimeError, match="vmap: aten::clamp_.* is not possible"):
            torch.func.vmap(lambda lo: x[0].clone().clamp_(lo, hi))(torch.zeros(3, 5))
        with pytest.raises(RuntimeError, match="output with shape .* doesn't match the broadcast"):
            torch.func.vmap(lambda x: x.clone().clamp_(torch.zeros(2, 5), hi))(x)
        if pin:  # a wider bound without dimensions counts where x has none either
            wide, narrow = torch.tensor(0.1, dtype=torch.float64), torch.tensor([0.1, 0.5]).half()
            one = lambda x: x.clone().clamp_(wide, wide + 1).double()  # noqa: E731
            slopes = torch.func.grad(lambda x: torch.func.vmap(one)(x).sum())(narrow)
            assert_same(slopes, torch.stack([torch.func.grad(one)(x) for x in narrow]))


# ---- What is raised around a block ---------------------------------------------------------------


@clampgrad.pin("half")
def decorated(n):
    return 1 + decorated(n)


def in_blocks(n):
    with clampgrad.pin("half"):
        return 1 + in_blocks(n)


@pytest.mark.parametrize("deep", [decorated, in_blocks])
def test_a_recursion_error_leaves_nothing_pinned(deep):
    """Wherever it is raised, even while entering or leaving, and no other error hides it."""
    with clampgrad.pin("half"):
        pass  # the first pin is over
    limit = sys.getrecursionlimit()
    for more in range(200, 260):
        sys.setrecursionlimit(more)
        try:
            with pytest.raises(RecursionError):
                deep(0)
        finally:
            sys.setrecursionlimit(limit)
        assert clampgrad.pin.current() is None, more


class Injected(Exception):
    pass


def raised_at(n, pin):
    """Enters and leaves a block, and raises at the n-th bytecode of ours; returns the
    function that raised, if any."""
    places = iter(range(n + 1))
    here = None

    def trace(frame, event, _):
        nonlocal here
        if "clampgrad" not in frame.f_code.co_filename.replace(__file__, ""):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(places, None) == n:
            here = frame.f_code.co_name
            raise Injected
        return trace

    # Before settrace, which alone looks for it in Python 3.12.
    sys._getframe().f_trace_opcodes = True
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pin:
            pass
    except Injected:
        pass
    finally:
        sys.settrace(before)
    return here


def test_an_error_at_any_bytecode_leaves_nothing_pinned():
    """Except at the return of __enter__, and at the few of __exit__ that close the block. Of these,
    Python handles a signal only at the first. torch's own guards have more such places."""
    pin, n, left_pinned = clampgrad.pin("half"), 0, []
    with pin:
        pass
    while name := raised_at(n, pin):
        if clampgrad.pin.current() is not None:
            left_pinned.append(name)
            state.find_block_entered_by(pin._number)[0].is_open = False
        n += 1
    assert n > 100 and left_pinned.count("__enter__") <= 1 and left_pinned.count("__exit__") < 20
    assert set(left_pinned) <= {"__enter__", "__exit__"}


def test_what_is_raised_inside_is_not_hidden_by_the_order():
    outer, inner = clampgrad.pin("half"), clampgrad.pin("inclusive")
    with pytest.raises(ZeroDivisionError), outer:
        inner.__enter__()
        raise ZeroDivisionError
    inner.__exit__(None, None, None)
    assert clampgrad.pin.current() is None


@pytest.mark.parametrize("function", [F.relu, F.relu6, partial(F.hardtanh, min_val=0)])
def test_what_has_a_formula_of_its_own_is_not_pinned(function):
    """Functions that are composed of clamps are pinned: test_pin_reach.py."""
    with clampgrad.pin("straight_through"):
        assert eager(function, [torch.zeros(1)], torch.ones(1))[0].item() == 0


@pytest.mark.parametrize("pin", CONVENTIONS)
def test_our_own_operators_are_immune(pin):
    kinds = [
        inputs("clamp")[kind] for kind in ("number: number", "Tensors", "mixed: number, Tensor")
    ]
    with clampgrad.pin(pin):
        for args, context, form in product(kinds, ("plain", "vmap vjp"), ("function", "in place")):
            check_all(Cell("clamp", args, c, form=form, context=context) for c in CONVENTIONS)


# ---- What holds where ----------------------------------------------------------------------------


def test_inner_block_overrides_outer_and_process():
    """A block takes precedence over the block around it, and over the pin of the
    process, whenever that is set."""
    clampgrad.set_pin("half")
    with clampgrad.pin("straight_through"):
        assert (slope(), clampgrad.pin.current()) == (STRAIGHT_THROUGH_SLOPES, "straight_through")
        with clampgrad.pin("half"):
            assert (slope(), clampgrad.pin.current()) == (HALF_SLOPES, "half")
            with clampgrad.pin(None):
                assert (slope(), clampgrad.pin.current()) == (STOCK_SLOPES, None)
            assert slope() == HALF_SLOPES
        clampgrad.set_pin("inclusive")
        assert slope() == STRAIGHT_THROUGH_SLOPES
    assert (slope(), clampgrad.pin.current()) == (INCLUSIVE, "inclusive")


def test_the_first_block_of_a_process():
    code = f"""{SLOPE_SCRIPT}
import clampgrad
with clampgrad.pin("half"):
    assert slope(clamp) == HALF_SLOPES
assert slope(clamp) != HALF_SLOPES
print("pinned")
"""
    assert python("-c", code) == "pinned\n"


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_block_is_of_its_thread():
    with clampgrad.pin("half"):
        assert in_a_thread(slope) == STOCK_SLOPES
        assert in_a_thread(clampgrad.pin("straight_through")(slope)) == STRAIGHT_THROUGH_SLOPES
        assert slope() == HALF_SLOPES
    clampgrad.set_pin("half")
    assert in_a_thread(lambda: (slope(), clampgrad.pin.current())) == (HALF_SLOPES, "half")
    clampgrad.set_pin(None)
    assert in_a_thread(lambda: (slope(), clampgrad.pin.current())) == (STOCK_SLOPES, None)


def test_a_thread_that_ends_inside_a_block_leaves_nothing():
    assert in_a_thread(lambda: clampgrad.pin("half").__enter__() and slope()) == HALF_SLOPES
    assert slope() == STOCK_SLOPES


def test_a_block_while_other_threads_clamp():
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(slope) for _ in range(2000)]
        while not all(other.done() for other in others):
            with clampgrad.pin("half"):
                assert slope() == HALF_SLOPES
            assert slope() == STOCK_SLOPES
    assert all(other.result() == STOCK_SLOPES for other in others)


def test_the_convention_is_that_of_the_forward():
    x = torch.zeros(1, requires_grad=True)
    with clampgrad.pin("half"):
        y = torch.clamp(x, 0, 1)
    z = torch.clamp(x, 0, 1)
    with clampgrad.pin("straight_through"):
        assert torch.autograd.grad(y, x)[0].item() == 0.5
        assert torch.autograd.grad(z, x)[0].item() == STOCK_SLOPES[0]


# ---- Misuse: an error, and torch as it was -------------------------------------------------------


def test_blocks_out_of_order():
    """It is an error, also where a pin is entered twice, and no block holds after its end."""
    half, through = clampgrad.pin("half"), clampgrad.pin("straight_through")
    for pin in (half, half, through):
        pin.__enter__()
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match="half> was left before a block that was entered aft"
        ):
            half.__exit__(None, None, None)
        assert slope() == STRAIGHT_THROUGH_SLOPES
    through.__exit__(None, None, None)
    assert slope() == STOCK_SLOPES
    with pytest.raises(RuntimeError, match="half> is not entered here"):
        half.__exit__(None, None, None)


def test_torchscript_that_differentiates_by_itself_is_refused():
    def f(x):
        return (torch.clamp(x * 2.0, 0.0, 1.0) * 3.0 + 1.0) * x

    script = torch.jit.script(f)
    x = random_with_ties(20, nan=False).clamp(-9, 9).requires_grad_()
    own = [torch.autograd.grad(script(x).sum(), x)[0] for _ in range(3)]
    with clampgrad.pin("half"):
        with pytest.raises(RuntimeError, match="which no pin reaches"):
            script(x)
        with torch.no_grad():
            script(x)  # nothing is differentiated
    assert_same(torch.autograd.grad(script(x).sum(), x)[0], own[-1])
