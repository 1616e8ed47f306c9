"""Code that runs under a pin whenever it runs: later, or in steps."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from clampgrad._implementation import Block
from clampgrad._pin.state import current, innermost, make_innermost, new_block, tidy


class Body:
    """Code that runs under a pin in steps. The pin holds while it runs, and in tasks
    that it starts until it ends."""

    def __init__(self, name: str | None) -> None:
        self.block = new_block(name)
        self.inside: Block | None = self.block  # or whatever block the body is in

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self.block.is_open = False
        tidy()

    def run(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        outside = innermost()
        self.move_here()
        try:
            make_innermost(self.inside)
            return function(*args, **keywords)
        finally:
            self.inside = make_innermost(outside)
            # Note [What is thrown in]
            # ~~~~~~~~~~~~~~~~~~~~~~~~
            # The frames between a caller and the body are in the traceback of an exception that was
            # thrown in. If they kept it, the two would be a cycle, and the body's tensors would
            # stay until Python looks for cycles.
            del function, args

    def move_here(self) -> None:
        """A generator may go on in another thread, and its blocks with it."""
        block = self.inside
        while block:
            if not block.is_of_this_thread:
                block.move_here()
            block = None if block is self.block else block.outer

    @types.coroutine
    def steps(self, generator: Any) -> Any:
        """Runs a generator or, awaited, a coroutine."""
        resume, value = generator.send, None
        try:
            while True:
                try:
                    item = self.run(resume, value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield item)
                except BaseException as error:  # GeneratorExit too
                    resume, value = generator.throw, error
        finally:
            del generator, resume, value  # Note [What is thrown in]


class Remembered:
    """A function and what is pinned while it runs."""

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        self.function, self.name = function, name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        with Body(self.name) as body:
            return body.run(self.function, *args, **keywords)


def remember(function: Callable[..., Any]) -> Remembered:
    """The function with the pin that holds now; a remembered one keeps its pin."""
    return function if isinstance(function, Remembered) else Remembered(function, current())
