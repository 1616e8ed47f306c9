"""Functions that run under a pin, whenever they run: later, or bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from clampgrad import _implementation
from clampgrad._pin.state import TORCHS_OWN, Block, close, opened, swap


class Remembered:
    """A function and the pin that it runs under; without a code, the one that holds now."""

    def __init__(self, function: Callable[..., Any], code: int | None = None) -> None:
        self.function = function
        self.code = _implementation.pin_current() if code is None else code

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        body = Body(self.code)
        try:
            return body.run(self.function, *args, **keywords)
        finally:
            body.end()


class Body:
    """What runs under a pin bit by bit. The pin holds while it runs, and in tasks that it starts until it ends."""

    def __init__(self, code: int) -> None:
        self.block = opened(code)
        self.inside: Block | None = self.block  # or whatever block the body is in

    def run(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        outside = swap(self.inside)
        try:
            return function(*args, **keywords)
        finally:
            self.inside = swap(outside)

    def end(self) -> None:
        close(self.block)

    def steps(self, generator: Any) -> Generator[Any, Any, Any]:
        """Runs a generator or a coroutine."""
        resume, value = generator.send, None
        while True:
            try:
                item = self.run(resume, value)
            except StopIteration as end:
                return end.value
            try:
                resume, value = generator.send, (yield item)
            except BaseException as error:  # GeneratorExit too
                resume, value = generator.throw, error

    def awaited(self, coroutine: Any) -> Awaitable:
        return Awaitable(self.steps(coroutine))


class Awaitable:
    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.steps


def remember(function: Callable[..., Any], code: int | None = None) -> Remembered:
    """What is remembered already keeps its pin."""
    return function if isinstance(function, Remembered) else Remembered(function, code)


def recorded_earlier(function: Callable[..., Any]) -> Remembered:
    """What nobody has remembered was recorded before the first pin, and so without one."""
    return remember(function, TORCHS_OWN)
