"""Functions that clampgrad.pin decorates: their bodies run under the pin, and nothing else does.

A generator or coroutine function runs its body later and in steps. Any function may return a
generator or a coroutine; `inspect` does not see through a wrapper.
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

from clampgrad._pin.body import PinnedBody
from clampgrad._pin.captured import warn_if_captured
from clampgrad._pin.first_pin import ensure_hooks_installed

# Objects that run code after the call has returned. @contextmanager makes a ContextDecorator.
RUNS_LATER = Iterator, Awaitable, AsyncIterator, ContextDecorator, AsyncContextDecorator
Enter = Callable[[], PinnedBody]


def decorate(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """Returns a wrapper that runs the body of a function or generator, asynchronous or not, under
    the pin."""
    if not callable(function) or isinstance(function, (type, nn.Module, classmethod, staticmethod)):
        raise TypeError(
            f"clampgrad.pin decorates functions, not {function!r}: decorate the function or the "
            "method that it is made of, such as forward, or call it inside `with "
            "clampgrad.pin(...)`"
        )

    enter = functools.partial(enter_pin, name)

    def call(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            result = body.run(function, *args, **keywords)
        if isinstance(result, types.GeneratorType):
            later = wrap_generator(lambda: result, enter, result.gi_code)
        elif isinstance(result, types.CoroutineType):
            later = wrap_coroutine(lambda: result, enter)
        elif isinstance(result, types.AsyncGeneratorType):
            later = wrap_async_generator(lambda: result, enter)
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

    # inspect, and so pytest, sees the signature of the function.
    wrapper = functools.wraps(function)(wrap_if_generator(function, function, enter) or call)
    # torch.jit.script raises this. It would compile the function without the pin.
    wrapper.__script_unsupported = (  # type: ignore[attr-defined]
        "clampgrad.pin decorates what TorchScript would compile without it: script the function, "
        "and pin the call"
    )
    return wrapper


def wrap_if_generator(function: Any, runs: Any, enter: Enter) -> Callable[..., Any] | None:
    """Returns a wrapper if `runs`, the body of the function, is a generator or coroutine function,
    or else None."""
    if inspect.iscoroutinefunction(runs):
        return wrap_coroutine(function, enter)
    if inspect.isasyncgenfunction(runs):
        return wrap_async_generator(function, enter)
    if inspect.isgeneratorfunction(runs) and hasattr(runs, "__code__"):
        return wrap_generator(function, enter, runs.__code__)
    return None


def wrap_generator(
    make: Callable[..., Any], enter: Enter, runs: types.CodeType
) -> Callable[..., Any]:
    def generate(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            return (yield from body.drive(body.run(make, *args, **keywords)))

    # A generator that types.coroutine decorates is awaited.
    return types.coroutine(generate) if runs.co_flags & inspect.CO_ITERABLE_COROUTINE else generate


def wrap_coroutine(make: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    async def run(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            return await body.drive(body.run(make, *args, **keywords))

    return run


def wrap_async_generator(make: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    async def generate(*args: Any, **keywords: Any) -> Any:
        with enter() as body:
            steps = body.run(make, *args, **keywords)
            step = steps.asend(None)
            try:
                while True:
                    try:
                        item = await body.drive(step)
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
                await body.drive(steps.aclose())

    return generate


def enter_pin(name: str | None) -> PinnedBody:
    warn_if_captured(name, stacklevel=4)
    ensure_hooks_installed()
    return PinnedBody(name)
