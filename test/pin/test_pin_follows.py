"""A pin follows the work of its thread into the threads that torch starts for it, and no further.

On a GPU every backward runs in such threads; on a CPU a deeply nested one does, and what a script
forks. So the tests are the same for both.
"""

import asyncio
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import clampgrad
from testing.processes import python
from testing.slopes import (
    HALF_SLOPES,
    SLOPE_SCRIPT,
    SLOPES,
    STOCK_SLOPES,
    STRAIGHT_THROUGH_SLOPES,
    slope,
)

DEPTH = 80  # from 60 nested calls on, torch takes another thread


class Backward(torch.autograd.Function):
    """Its backward calls a function, inside so many calls of backward."""

    @staticmethod
    def forward(ctx, x, function, depth):
        ctx.function, ctx.depth = function, depth
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            if ctx.depth > 1:
                backward(ctx.function, ctx.depth - 1)
            else:
                ctx.function()
        return g, None, None


def backward(function, depth):
    Backward.apply(torch.ones(1, requires_grad=True), function, depth).sum().backward()


def in_backward(function, depth=DEPTH):
    """What the function returns where it is called in a backward."""
    returned = []
    backward(lambda: returned.append((threading.get_ident(), function())), depth)
    ((thread, result),) = returned
    assert depth == 1 or thread != threading.get_ident()
    return result


class Clamps(torch.autograd.Function):
    """Its gradient is clamped."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return torch.clamp(g, 0, 1)


def slope_of_gradient(f):
    """How a gradient that is clamped moves with the gradient that it is made of."""
    x = torch.zeros(2, requires_grad=True)
    return slope(lambda g: torch.autograd.grad(f(x), x, g, create_graph=True)[0])


def clamped_by_a_hook(x):
    y = x * 1
    y.register_hook(lambda g: g.clamp(0, 1))
    return y * 1


def penalty():
    """The gradient of a gradient penalty, of a critic whose gradient is clamped."""
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    (g,) = torch.autograd.grad((Clamps.apply(x) * x).sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0].sub(1).tolist()


def recomputed():
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    y = checkpoint(lambda x: torch.clamp(x * 1, 0, 1), x, use_reentrant=False)
    with clampgrad.pin("joint"):
        return torch.autograd.grad(y.sum(), x)[0].tolist()


def transformed():
    return torch.func.grad(lambda x: torch.clamp(x, 0, 1).sum())(torch.tensor([0.0, 2.0])).tolist()


def parallel():
    """The rule for vmap asks, too."""
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    y = torch.func.vmap(lambda x: x.clone().clamp_(0, 1))(x)
    return torch.autograd.grad(y.sum(), x)[0].tolist()


compiled = torch.compile(lambda x: torch.clamp(x, 0, 1) * 1, backend="eager")
DIFFERENTIATED = {
    "a Function that differentiates": slope,
    "a Function, create_graph": lambda: slope_of_gradient(Clamps.apply),
    "a hook, create_graph": lambda: slope_of_gradient(clamped_by_a_hook),
    "a gradient penalty": penalty,
    "a checkpoint": recomputed,
    "torch.func": transformed,
    "vmap in place": parallel,
    "compiled": lambda: slope(compiled),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("depth", [1, DEPTH])
@pytest.mark.parametrize("how", DIFFERENTIATED)
def test_what_backward_differentiates(how, depth):
    function = DIFFERENTIATED[how]
    for pin in (None, "half", "straight_through", None):
        with clampgrad.pin(pin):
            assert in_backward(function, depth) == SLOPES[pin] == function(), pin


def test_blocks_nest():
    def inner():
        seen = [slope()]
        with clampgrad.pin(None):
            seen.append(in_backward(slope, 1))
            with clampgrad.pin("straight_through"):
                seen.append(in_backward(slope))
        return [*seen, slope(), clampgrad.pin.current()]

    def expected(pin):
        return [*(SLOPES[p] for p in (pin, None, "straight_through", pin)), pin]

    clampgrad.set_pin("straight_through")
    with clampgrad.pin("half"):
        assert in_backward(inner) == expected("half")
    assert in_backward(inner) == expected("straight_through")
    clampgrad.set_pin(None)
    assert in_backward(inner) == expected(None)


def test_a_decorated_function():
    assert clampgrad.pin("half")(in_backward)(slope) == HALF_SLOPES
    with clampgrad.pin("half"):
        assert in_backward(clampgrad.pin("straight_through")(slope)) == STRAIGHT_THROUGH_SLOPES
        remembered = clampgrad.pin.remember(slope)
    with clampgrad.pin("straight_through"):
        assert in_backward(remembered) == HALF_SLOPES


def test_an_error_leaves_nothing_pinned():
    """Neither here nor in the thread that it was raised in, which later
    calls of backward use again."""

    def fail():
        with clampgrad.pin("straight_through"):
            clampgrad.pin("half").__enter__()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), clampgrad.pin("half"):
        in_backward(fail)
    assert clampgrad.pin.current() is None and in_backward(slope) == STOCK_SLOPES


def test_a_block_that_is_entered_in_a_backward_ends_with_it():
    def enter():
        clampgrad.pin("half").__enter__()
        return slope()

    assert in_backward(enter) == HALF_SLOPES
    assert (slope(), in_backward(slope)) == (STOCK_SLOPES, STOCK_SLOPES)


def test_a_block_is_left_in_its_own_thread():
    pin = clampgrad.pin("half")

    def leave():
        with pytest.raises(RuntimeError, match="half> is not entered here"):
            pin.__exit__(None, None, None)
        return slope()

    with pin:
        assert in_backward(leave) == HALF_SLOPES
        assert slope() == HALF_SLOPES


def test_threads_of_python_are_not_pinned():
    """Those that something in backward starts are like all others."""

    def begin():
        seen = []
        thread = threading.Thread(target=lambda: seen.extend([slope(), in_backward(slope)]))
        thread.start()
        thread.join()
        return seen

    with clampgrad.pin("half"):
        assert in_backward(begin) == [STOCK_SLOPES, STOCK_SLOPES]


def test_two_threads_at_once():
    """Each has its own pin, although the same threads of torch may work for both."""

    def run(pin):
        for _ in range(20):
            with clampgrad.pin(pin):
                both.wait()
                seen.append(in_backward(slope) == in_backward(slope, 1) == SLOPES[pin])

    seen, both = [], threading.Barrier(2)
    threads = [threading.Thread(target=run, args=[pin]) for pin in ("half", "straight_through")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 40


def test_nothing_is_handed_on_after_a_block():
    with clampgrad.pin("half"):
        pass
    assert in_backward(clampgrad._implementation.pin_thread_block) is None
    if hasattr(torch._C, "_remove_obj_from_tls"):
        assert not torch._C._is_key_in_tls("clampgrad.pin")


@pytest.mark.parametrize("depth", [1, DEPTH])
def test_tasks(depth):
    """The block of a task goes along, whichever task was in a block last."""

    async def task(pin):
        for _ in range(3):
            with clampgrad.pin(pin):
                await asyncio.sleep(0)
                assert in_backward(slope, depth) == SLOPES[pin]
                await asyncio.sleep(0)
                assert slope() == SLOPES[pin]
            await asyncio.sleep(0)
            assert in_backward(slope, depth) == STRAIGHT_THROUGH_SLOPES

    async def inside():
        with clampgrad.pin("inclusive"):
            await asyncio.sleep(0)
            return slope()

    def in_a_hook():
        """A block of the hook's own, and a loop where none runs."""
        with clampgrad.pin(None):
            seen = [slope()]
        if depth > 1:
            seen.append(asyncio.run(inside()))
        return [*seen, slope()]

    async def main():
        await asyncio.gather(*map(task, SLOPES))
        with clampgrad.pin("half"):
            slopes = in_backward(in_a_hook, depth)
        assert slopes == [STOCK_SLOPES, *[[1, 0]] * (depth > 1), HALF_SLOPES]

    with clampgrad.pin("straight_through"):
        asyncio.run(main())
        assert in_backward(slope, depth) == STRAIGHT_THROUGH_SLOPES


# ---- What a script forks ------------------------------------------------------------------------

FORKED = """
import asyncio, os, threading, warnings
import clampgrad

torch.set_default_device(sys.argv[1])
STOCK_SLOPES = slope(clamp)
warnings.simplefilter("ignore")  # TorchScript is deprecated

@torch.jit.ignore
def wait(x: torch.Tensor) -> torch.Tensor:
    assert threading.get_ident() != here
    seen.append(clampgrad.pin.current())
    begun.set()
    assert goes_on.wait(60)
    seen.append(clampgrad.pin.current())
    return x

@torch.jit.script
def work(x: torch.Tensor):
    return wait(x).clamp(0.0, 1.0)

@torch.jit.script
def fork(x: torch.Tensor):
    return torch.jit.fork(work, x)

@torch.jit.script
def forked(x: torch.Tensor):
    return torch.jit.wait(torch.jit.fork(work, x))

here, seen = threading.get_ident(), []
begun, goes_on = threading.Event(), threading.Event()
goes_on.set()
assert slope(forked) == STOCK_SLOPES and seen == [None] * 2, seen
with clampgrad.pin("half"):
    assert slope(forked) == HALF_SLOPES
assert slope(forked) == STOCK_SLOPES

# The work goes on after the block was left.
seen.clear(), begun.clear(), goes_on.clear()
x = torch.tensor([0.0, 2.0], requires_grad=True)
with clampgrad.pin("half"):
    future = fork(x)
    assert begun.wait(60)
with clampgrad.pin("straight_through"):
    goes_on.set()
    y = future.wait()  # which releases the GIL
assert torch.autograd.grad(y.sum(), x)[0].tolist() == HALF_SLOPES and seen == ["half"] * 2, seen

# Which task forked is not known there.
async def main():
    with clampgrad.pin("half"):
        try:
            forked(x)
            raise SystemExit("no error")
        except RuntimeError as error:
            assert "only the thread of the loop can tell them apart" in str(error)
        assert slope(clamp) == HALF_SLOPES
    assert slope(forked) == STOCK_SLOPES

asyncio.run(main())
clampgrad.set_pin("half")
assert slope(forked) == HALF_SLOPES
print("followed", flush=True)
os._exit(0)  # with no clampgrad too, torch's thread may want the GIL of an interpreter that is gone, and abort
"""


def test_what_a_script_forks(tmp_path, request):
    (tmp_path / "script.py").write_text(SLOPE_SCRIPT + FORKED)  # TorchScript reads it
    device = request.config.getoption("device")
    device = "cpu" if device == "mock" else device  # which the other process does not know
    assert python(tmp_path / "script.py", device) == "followed\n"


# ---- Blocks that are closed or resumed elsewhere ------------------------------------------------


def closed_by_an_event_loop():
    pin = clampgrad.pin("half")
    pin.__enter__()

    async def close():
        pin.__exit__(None, None, None)

    asyncio.run(close())


def closed_by_a_hook():
    pin = clampgrad.pin("half")
    pin.__enter__()
    # On a CPU: a GPU's hooks run in another thread, where the block cannot be left.
    y = torch.ones(1, requires_grad=True, device="cpu") * 1
    y.register_hook(lambda g: pin.__exit__(None, None, None))
    y.sum().backward()


@pytest.mark.parametrize("close", [closed_by_an_event_loop, closed_by_a_hook])
def test_a_block_that_was_closed_is_not_handed_on(close):
    close()
    assert clampgrad.pin.current() is None
    assert in_backward(clampgrad.pin.current) is None and in_backward(slope) == STOCK_SLOPES


@clampgrad.pin("straight_through")
def steps():
    with clampgrad.pin("half"):
        yield slope()
        yield slope()
    yield slope()


def test_a_generator_that_changes_threads():
    generator, slopes = steps(), []
    for _ in range(3):
        thread = threading.Thread(target=lambda: slopes.append(next(generator)))
        thread.start()
        thread.join()
    assert slopes == [HALF_SLOPES, HALF_SLOPES, STRAIGHT_THROUGH_SLOPES]


FOREIGN = (
    SLOPE_SCRIPT
    + """
import asyncio, os, clampgrad
told = []
@torch.jit.ignore
def ask(x):
    for _ in range(2):
        try:
            told.append(clampgrad.pin.current())
        except RuntimeError as error:
            told.append("error")
        y = torch.ones(1, requires_grad=True)
        (y * 2).sum().backward()
    return x
def forked(x):
    return ask(x)
@torch.jit.script
def script(x):
    return torch.jit.fork(forked, x)
async def main():
    with clampgrad.pin("half"):
        script(torch.ones(1)).wait()
asyncio.run(main())
print(*told, flush=True)
os._exit(0)  # torch's thread may still be there, and would end the process otherwise
"""
)


def test_a_backward_in_a_fork_of_a_task_does_not_hide_the_task(tmp_path):
    file = tmp_path / "script.py"  # TorchScript reads it
    file.write_text(FOREIGN)
    assert python("-W", "ignore", file) == "error error\n"
