"""Functions that clampgrad.pin decorates: their bodies run under the pin, and nothing else does.

A generator or coroutine function runs its body later and in steps. So may what another function
returns: `inspect` cannot tell for a function around the function.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncContextDecorator, ContextDecorator
from typing import Any

from torch import nn

from clampgrad._pin.body import Body
from clampgrad._pin.captured import warn_if_captured
from clampgrad._pin.first_pin import tell_torch

# Objects that run code after the call has returned. @contextmanager makes a ContextDecorator.
RUNS_LATER = Iterator, Awaitable, AsyncIterator, ContextDecorator, AsyncContextDecorator
Enter = Callable[[], Body]


def decorated(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """The function that stands for one that is decorated: a function or
    generator, asynchronous or not."""
    if not callable(function) or isinstance(function, (type, nn.Module, classmethod, staticmethod)):
        raise TypeError(
            f"clampgrad.pin decorates functions, not {function!r}: decorate the function or the "
            "method that it is made of, such as forward, or call it inside `with "
            "clampgrad.pin(...)`"
        )

    enter = functools.partial(under, name)

    def call(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            result = body.run(function, *args, **keywords)
        if isinstance(result, types.GeneratorType):
            later = generator(lambda: result, enter, result.gi_code)
        elif isinstance(result, types.CoroutineType):
            later = coroutine(lambda: result, enter)
        elif isinstance(result, types.AsyncGeneratorType):
            later = asynchronous_generator(lambda: result, enter)
        else:
            if isinstance(result, RUNS_LATER):
                warnings.warn(
                    f"the pin {name!r} has ended before what it decorates runs, which returns a "
                    f"{type(result).__name__}: pin the function that this one calls later, "
                    "or write `with` inside it",
                    stacklevel=2,
                )
            return result
        return functools.wraps(function)(later)()

    # They run the same bodies. To inspect, and so to pytest, each looks like the function.
    instead = functools.wraps(function)(in_steps(function, function, enter) or call)
    # torch.jit.script raises this. It would compile the function without the pin.
    instead.__script_unsupported = (  # type: ignore[attr-defined]
        "clampgrad.pin decorates what TorchScript would compile without it: script the function, "
        "and pin the call"
    )
    return instead


def in_steps(function: Any, runs: Any, enter: Enter) -> Callable[..., Any] | None:
    """What stands for the function if what it runs is a generator or coroutine function."""
    if inspect.iscoroutinefunction(runs):
        return coroutine(function, enter)
    if inspect.isasyncgenfunction(runs):
        return asynchronous_generator(function, enter)
    if inspect.isgeneratorfunction(runs) and hasattr(runs, "__code__"):
        return generator(function, enter, runs.__code__)
    return None


def generator(make: Callable[..., Any], enter: Enter, runs: types.CodeType) -> Callable[..., Any]:
    def generate(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            return (yield from body.steps(body.run(make, *args, **keywords)))

    # A generator that types.coroutine decorates is awaited.
    return types.coroutine(generate) if runs.co_flags & inspect.CO_ITERABLE_COROUTINE else generate


def coroutine(make: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    async def run(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            return await body.steps(body.run(make, *args, **keywords))

    return run


def asynchronous_generator(make: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    async def generate(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            steps = body.run(make, *args, **keywords)
            step = steps.asend(None)
            try:
                while True:
                    try:
                        item = await body.steps(step)
                    except StopAsyncIteration:
                        return
                    try:
                        step = steps.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = steps.athrow(error)
            finally:
                del step  # Note [What is thrown in]
                await body.steps(steps.aclose())

    return generate


def under(name: str | None) -> Body:
    warn_if_captured(name, stacklevel=4)
    tell_torch()
    return Body(name)
