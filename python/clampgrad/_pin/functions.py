"""Functions that run under a pin, whenever they run: later, or bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from clampgrad import _implementation
from clampgrad._pin.state import TORCHS_OWN, Block, swap


class Remembered:
    """A function and the pin that it runs under; without a code, the one that holds now."""

    def __init__(self, function: Callable[..., Any], code: int | None = None) -> None:
        self.function = function
        self.code = _implementation.pin_current() if code is None else code

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        outside = swap(Block(self.code))
        try:
            return self.function(*args, **keywords)
        finally:
            swap(outside)


def steps(code: int, body: Any) -> Generator[Any, Any, Any]:
    """Runs a generator or a coroutine under a pin, which holds only while `body` itself runs."""
    inside: Block | None = Block(code)  # then whatever blocks the body is in
    resume, value = body.send, None
    while True:
        outside = swap(inside)
        try:
            item = resume(value)
        except StopIteration as end:
            return end.value
        finally:
            inside = swap(outside)
        try:
            resume, value = body.send, (yield item)
        except BaseException as error:  # GeneratorExit too
            resume, value = body.throw, error


class Awaitable:
    """A coroutine whose every step runs under a pin."""

    def __init__(self, code: int, coroutine: Any) -> None:
        self.code, self.coroutine = code, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return steps(self.code, self.coroutine)


def remember(function: Callable[..., Any], code: int | None = None) -> Remembered:
    """What is remembered already keeps its pin."""
    return function if isinstance(function, Remembered) else Remembered(function, code)


def recorded_earlier(function: Callable[..., Any]) -> Remembered:
    """What nobody has remembered was recorded before the first pin, and so without one."""
    return remember(function, TORCHS_OWN)
