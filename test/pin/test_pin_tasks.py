"""A pin holds in the body that it is put around, even if that runs in
steps: generators and tasks."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import inspect
import types
import weakref

import pytest
import torch

import clampgrad
from clampgrad._pin import state
from testing.slopes import HALF_SLOPES, STOCK_SLOPES, STRAIGHT_THROUGH_SLOPES, slope

half, through = clampgrad.pin("half"), clampgrad.pin("straight_through")


def tasks_are_in_blocks():
    return any(block.is_open for block in state._thread.task_blocks)


@pytest.fixture(autouse=True)
def no_task_is_in_a_block():
    yield
    assert not tasks_are_in_blocks()  # else every call asks Python for the pin


# ---- Generators ----------------------------------------------------------------------------------


@half
def steps(log):
    try:
        while True:
            try:
                log.append((slope(), (yield slope())))
            except KeyError:
                log.append("caught")
    finally:
        log.append(slope())


def test_a_generator():
    """send, throw and close all resume the body under the pin; between them it is off."""
    body = steps(log := [])
    assert inspect.isgeneratorfunction(steps) and steps.__name__ == "steps"
    assert next(body) == HALF_SLOPES and slope() == STOCK_SLOPES
    with through:
        assert body.send(1) == HALF_SLOPES and slope() == STRAIGHT_THROUGH_SLOPES
    assert body.throw(KeyError()) == HALF_SLOPES and slope() == STOCK_SLOPES
    body.close()
    assert log == [(HALF_SLOPES, 1), "caught", HALF_SLOPES] and slope() == STOCK_SLOPES


class Held:
    """Something that a body holds."""


def of_generator(decorate):
    @decorate
    def body(held):
        one = Held()
        held.append(weakref.ref(one))
        yield

    def throw(held):
        (steps := body(held)).send(None)
        with contextlib.suppress(KeyError):
            steps.throw(KeyError())

    return throw


def of_coroutine(decorate):
    @decorate
    async def body(held):
        one = Held()
        held.append(weakref.ref(one))
        await asyncio.sleep(60)

    async def cancel(held):
        task = asyncio.create_task(body(held))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return lambda held: asyncio.run(cancel(held))


def of_asynchronous_generator(decorate):
    @decorate
    async def body(held):
        one = Held()
        held.append(weakref.ref(one))
        yield

    async def throw(held):
        await (steps := body(held)).asend(None)
        with contextlib.suppress(KeyError):  # here: asyncio.run keeps what it raises
            await steps.athrow(KeyError())

    return lambda held: asyncio.run(throw(held))


@pytest.mark.parametrize("of", [of_generator, of_coroutine, of_asynchronous_generator])
def test_what_is_thrown_in_keeps_nothing(of):
    """The body's tensors go when it ends, as without a pin, not when Python looks for cycles."""
    gc.disable()
    try:
        for decorate in (lambda body: body, half):
            of(decorate)(held := [])
            assert held[0]() is None
    finally:
        gc.enable()


def test_blocks_inside_a_decorated_generator_stay_inside():
    @half
    def body():
        with through:
            yield slope()
            yield slope()
        yield slope()

    with half:
        run = body()
        assert next(run) == STRAIGHT_THROUGH_SLOPES and slope() == HALF_SLOPES
    assert [(inside, slope()) for inside in run] == [
        (STRAIGHT_THROUGH_SLOPES, STOCK_SLOPES),
        (HALF_SLOPES, STOCK_SLOPES),
    ]


# ---- Asynchronous generators ---------------------------------------------------------------------


def in_a_loop(test):
    @functools.wraps(test)
    def run(**arguments):
        asyncio.run(test(**arguments))

    return run


@half
async def asynchronous_steps(log):
    try:
        while True:
            try:
                await asyncio.sleep(0)
                log.append((slope(), (yield slope())))
            except KeyError:
                log.append("caught")
    finally:
        log.append(slope())


@in_a_loop
async def test_an_asynchronous_generator():
    """asend, athrow and aclose do the same."""
    body = asynchronous_steps(log := [])
    assert inspect.isasyncgenfunction(asynchronous_steps)
    assert await body.asend(None) == HALF_SLOPES and slope() == STOCK_SLOPES
    with through:
        assert await body.asend(1) == HALF_SLOPES and slope() == STRAIGHT_THROUGH_SLOPES
    assert await body.athrow(KeyError()) == HALF_SLOPES and slope() == STOCK_SLOPES
    await body.aclose()
    assert log == [(HALF_SLOPES, 1), "caught", HALF_SLOPES] and slope() == STOCK_SLOPES


@in_a_loop
async def test_blocks_inside_a_decorated_asynchronous_generator_stay_inside():
    @half
    async def body():
        with through:
            yield slope()
        yield slope()

    assert [(inside, slope()) async for inside in body()] == [
        (STRAIGHT_THROUGH_SLOPES, STOCK_SLOPES),
        (HALF_SLOPES, STOCK_SLOPES),
    ]


# ---- Bodies, and what may hold them --------------------------------------------------------------


def function():
    return slope()


def generator():
    yield slope()


async def coroutine():
    await asyncio.sleep(0)
    return slope()


async def asynchronous_generator():
    await asyncio.sleep(0)
    yield slope()


@types.coroutine
def generator_coroutine():
    yield from asyncio.sleep(0).__await__()
    return slope()


BODIES = {
    function: type(STOCK_SLOPES),
    generator: types.GeneratorType,
    coroutine: types.CoroutineType,
    asynchronous_generator: types.AsyncGeneratorType,
    generator_coroutine: types.GeneratorType,
}
HELD = {  # the body in what is decorated
    "as it is": lambda f: f,
    "partial": functools.partial,
    "__call__": lambda f: type("Instance", (), {"__call__": staticmethod(f)})(),
    "bound method": lambda f: types.MethodType(lambda self: f(), object()),
    "method of partialmethod": lambda f: (
        type("Instance", (), {"m": functools.partialmethod(lambda self: f())})().m
    ),
    "wrapper": lambda f: functools.wraps(f)(lambda: f()),
    "lru_cache": lambda f: functools.lru_cache(f),
    "lambda": lambda f: lambda: f(),
}


async def result_of(made):
    if inspect.isawaitable(made):
        return await made
    if inspect.isasyncgen(made):
        return [item async for item in made][0]
    return next(made) if inspect.isgenerator(made) else made


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_what_holds_a_body(body, held):
    holder = HELD[held](body)
    decorated = half(holder)
    made = decorated()
    assert type(made) is BODIES[body] and asyncio.run(result_of(made)) == HALF_SLOPES
    for kind in (inspect.iscoroutinefunction, inspect.isasyncgenfunction):
        assert kind(decorated) == kind(holder)
    if inspect.isfunction(holder):
        assert inspect.isgeneratorfunction(decorated) == inspect.isgeneratorfunction(holder)


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_a_decorated_partial_in_a_class_is_a_method(body):
    """Like a function. A partial itself is a method only since Python 3.14."""
    kind = type("Kind", (), {"m": half(functools.partial(lambda self: body()))})
    assert asyncio.run(result_of(kind().m())) == HALF_SLOPES


class Awaitable:
    def __await__(self):
        yield from asyncio.sleep(0).__await__()


UNHELD = {
    "map": lambda: map(abs, [1]),
    "generator_manager": contextlib.contextmanager(generator),
    "asynchronous_manager": contextlib.asynccontextmanager(asynchronous_generator),
    "awaitable": Awaitable,
}


@pytest.mark.parametrize("made", UNHELD)
def test_what_runs_later_and_is_not_recognised_warns(made):
    with pytest.warns(UserWarning, match="has ended before what it decorates runs") as caught:
        half(lambda: UNHELD[made]())()
    assert caught[0].filename == __file__


# ---- Tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("around, outside", [(None, STOCK_SLOPES), ("half", HALF_SLOPES)])
def test_blocks_of_two_tasks_do_not_meet(around, outside):
    async def task(pin, expected, naps):
        with pin:
            for _ in range(naps):
                assert slope() == expected
                await asyncio.sleep(0)
        assert slope() == outside

    async def main():
        plain = task(contextlib.nullcontext(), outside, 8)
        tasks = [
            task(half, HALF_SLOPES, 2),
            task(through, STRAIGHT_THROUGH_SLOPES, 4),
            task(half, HALF_SLOPES, 5),
        ]
        with clampgrad.pin(around):
            await asyncio.gather(*tasks, plain)

    with clampgrad.pin(around):  # and around the whole loop
        asyncio.run(main())
        assert slope() == outside


@in_a_loop
async def test_what_is_remembered_runs_under_its_pin_whole():
    """A generator or coroutine, too, also where an object or a module is called."""

    with half:
        remembered = [*map(clampgrad.pin.remember, BODIES)]
    with through:
        for each in remembered:
            assert await result_of(each()) == HALF_SLOPES and slope() == STRAIGHT_THROUGH_SLOPES
            assert clampgrad.pin.remember(each) is each

    class Generates(torch.nn.Module):
        def forward(self):
            yield slope()

    class Waits:
        async def __call__(self):
            return await coroutine()

    module, waits = Generates(), Waits()
    holders = module, module.forward, waits
    holders += functools.partial(functools.partial(generator)), functools.partial(waits)
    with half:
        remembered = [*map(clampgrad.pin.remember, holders)]
    assert [await result_of(each()) for each in remembered] == [HALF_SLOPES] * len(holders)
    assert slope() == STOCK_SLOPES


class AnswersAll:
    """A proxy, whose every attribute is a function."""

    def __getattr__(self, name):
        return lambda *_: 1

    def __call__(self):
        return 5


def test_what_is_remembered_returns_what_it_returned_before():
    items = (item for item in range(9))
    with half:
        get = clampgrad.pin.remember(lambda: items)
        others = AnswersAll(), staticmethod(AnswersAll()), torch.nn.Identity(), str
        remembered = [clampgrad.pin.remember(other) for other in others]
    assert get() is items and next(get()) == 0
    assert [remembered[0](), remembered[1](), remembered[2](3), remembered[3]()] == [5, 5, 3, ""]


@pytest.mark.parametrize("another_is_in_a_block", [False, True])
@pytest.mark.parametrize("start", ["block", "coroutine", "generator", "remembered"])
@in_a_loop
async def test_tasks_that_a_body_starts_are_pinned_until_it_ends(start, another_is_in_a_block):
    async def child():
        seen.append(slope())
        await left.wait()
        seen.append(slope())

    def begin():
        running.append(asyncio.create_task(child()))

    async def begins():
        begin()
        await asyncio.sleep(0)

    async def begins_and_yields():
        yield await begins()

    async def another():
        with through:
            await left.wait()

    seen, left, running = [], asyncio.Event(), []
    beside = [asyncio.create_task(another())] if another_is_in_a_block else []
    await asyncio.sleep(0)
    if start == "block":
        with half:
            await begins()
    elif start == "coroutine":
        await half(begins)()
    elif start == "generator":
        assert [item async for item in half(begins_and_yields)()] == [None]
    else:
        with half:
            remembered = clampgrad.pin.remember(begin)
        remembered()
    if not beside:  # also while the child remembers it
        assert not tasks_are_in_blocks()
    await asyncio.sleep(0)
    left.set()
    await asyncio.gather(*running, *beside)
    # The remembered function has ended before a task that it started begins.
    assert seen == [STOCK_SLOPES if start == "remembered" else HALF_SLOPES, STOCK_SLOPES]


@in_a_loop
async def test_tasks_that_start_each_other_keep_no_closed_blocks():
    """Each starts the next one in its block, and ends."""
    started, kept = set(), []

    async def step(left):
        with half:
            assert slope() == HALF_SLOPES
            if left:
                task = asyncio.create_task(step(left - 1))
                started.add(task)
                task.add_done_callback(started.discard)
                await asyncio.sleep(0)
        kept.append(len(state._thread.task_blocks))

    await step(50)
    while started:
        await asyncio.sleep(0)
    assert len(kept) == 51 and max(kept) < 10


def test_a_long_chain_of_blocks_ends():
    block = None
    for _ in range(200_000):
        block = state.Block("half", block, 0)
    del block  # with a recursion, the process would end here


def test_a_block_lets_go_of_a_closed_one_around_it():
    closed = state.Block("half", None, 0)
    around = state.Block("half", closed, 0)
    closed.is_open = False
    assert around.outer is not None
    state.Block("half", around, 0)
    assert around.outer is None


@in_a_loop
async def test_threads_started_from_a_task():
    """They get a copy of the context, but a block still belongs to its thread."""

    def in_the_thread():
        before = slope()
        with through:
            inside = slope()
        return before, inside, slope()

    with half:
        slopes = await asyncio.to_thread(in_the_thread)
        assert slopes == (STOCK_SLOPES, STRAIGHT_THROUGH_SLOPES, STOCK_SLOPES)
        assert slope() == HALF_SLOPES


@pytest.mark.parametrize("make", [contextvars.copy_context, contextvars.Context])
def test_a_block_of_a_thread_holds_in_every_context(make):
    """Only tasks have blocks of their own."""
    context = make()
    pinned = half(slope)
    with through:
        assert slope() == STRAIGHT_THROUGH_SLOPES and context.run(pinned) == HALF_SLOPES
        assert slope() == STRAIGHT_THROUGH_SLOPES
        with half:
            assert context.run(pinned) == slope() == context.run(slope) == HALF_SLOPES
        assert slope() == STRAIGHT_THROUGH_SLOPES


def test_a_block_around_a_loop_outlives_those_of_its_tasks():
    loop = asyncio.new_event_loop()
    task = loop.create_task(half(coroutine)())
    with through:
        assert (loop.run_until_complete(task), slope()) == (HALF_SLOPES, STRAIGHT_THROUGH_SLOPES)
    loop.close()


@in_a_loop
async def test_a_block_in_a_block_of_a_task():
    """The outer one holds again, although nothing but the inner one knows of it in C++."""
    with half:
        with through:
            assert slope() == STRAIGHT_THROUGH_SLOPES
        assert slope() == slope() == slope() == HALF_SLOPES and clampgrad.pin.current() == "half"
