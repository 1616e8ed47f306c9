"""What clampgrad.pin makes of a function that it decorates: its body runs under the pin, and nothing else does."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn

from clampgrad._pin.first_pin import tell_torch
from clampgrad._pin.functions import Body


def decorated(
    function: Callable[..., Any], pin: AbstractContextManager[Any], code: int
) -> Callable[..., Any]:
    """The function that stands for one that is decorated: a function or generator, asynchronous or not."""
    if wrong := not_a_function(function):
        raise TypeError(f"clampgrad.pin decorates functions, not {wrong}")

    def call(*args: Any, **keywords: Any) -> Any:
        with pin:
            return function(*args, **keywords)

    def generate(*args: Any, **keywords: Any) -> Any:
        with under(code) as body:
            return (yield from body.steps(function(*args, **keywords)))

    async def run(*args: Any, **keywords: Any) -> Any:
        with under(code) as body:
            return await body.awaited(function(*args, **keywords))

    async def generate_async(*args: Any, **keywords: Any) -> Any:
        generator = function(*args, **keywords)
        with under(code) as body:
            step = generator.asend(None)
            try:
                while True:
                    try:
                        item = await body.awaited(step)
                    except StopAsyncIteration:
                        return
                    try:
                        step = generator.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = generator.athrow(error)
            finally:
                await body.awaited(generator.aclose())

    def is_a(kind: Callable[..., bool]) -> bool:
        return kind(function) or kind(what_runs(function))

    if is_a(inspect.isasyncgenfunction):
        instead: Callable[..., Any] = generate_async
    elif is_a(inspect.iscoroutinefunction):
        instead = run
    elif is_a(is_generator_coroutine):
        instead = types.coroutine(generate)
    elif is_a(inspect.isgeneratorfunction):
        instead = generate
    else:
        instead = call
    instead = functools.wraps(function)(instead)
    # What torch.jit.script raises. It would compile the function without the pin.
    instead.__script_unsupported = (  # type: ignore[attr-defined]
        "clampgrad.pin decorates what TorchScript would compile without it: script the function, and pin the call"
    )
    return instead


def what_runs(function: Any) -> Any:
    """The function of a partial one, and of an instance that is called."""
    while not inspect.isroutine(function):
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else type(function).__call__
    return function


def is_generator_coroutine(function: Any) -> bool:
    """Whether types.coroutine made it of a generator."""
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


@contextmanager
def under(code: int) -> Generator[Body, None, None]:
    tell_torch()
    body = Body(code)
    try:
        yield body
    finally:
        body.end()


def not_a_function(thing: Any) -> str | None:
    """What it is instead, and what to write."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}: decorate its methods, such as forward"
    if isinstance(thing, nn.Module):
        kind = type(thing).__name__
        return f"a module: decorate {kind}.forward, or call the module inside `with clampgrad.pin(...)`"
    is_descriptor = hasattr(type(thing), "__get__") and not callable(thing)
    if is_descriptor or isinstance(thing, (classmethod, staticmethod)):
        kind = type(thing).__name__
        return (
            f"a {kind}: decorate the function that it is made of, with @clampgrad.pin below @{kind}"
        )
    return None if callable(thing) else repr(thing)
