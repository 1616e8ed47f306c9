"""Bodies of functions that run under a pin whenever they run: later, or in steps."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from clampgrad._implementation import Block
from clampgrad._pin.state import (
    active_block,
    create_block,
    current_pin_name,
    drop_closed_blocks,
    set_innermost_block,
)


class PinnedBody:
    """A body that runs under a pin, in steps. The pin is active while it runs, and in tasks that it
    starts until it ends."""

    def __init__(self, name: str | None) -> None:
        self.block = create_block(name)
        self.inside: Block | None = self.block  # or the block that the body has entered

    def __enter__(self) -> PinnedBody:
        return self

    def __exit__(self, *_: object) -> None:
        self.block.is_open = False
        drop_closed_blocks()

    def run(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        outside = active_block()
        self.assign_to_this_thread()
        try:
            set_innermost_block(self.inside)
            return function(*args, **keywords)
        finally:
            self.inside = set_innermost_block(outside)
            # Note [What is thrown in]
            # ~~~~~~~~~~~~~~~~~~~~~~~~
            # The frames between a caller and the body are in the traceback of an exception that was
            # thrown in. If they kept it, the two would be a cycle, and the body's tensors would
            # stay until Python looks for cycles.
            del function, args

    def assign_to_this_thread(self) -> None:
        """Assigns the body's blocks to this thread. A suspended generator may have been resumed in
        another one."""
        block = self.inside
        while block:
            if not block.is_of_this_thread:
                block.assign_to_this_thread()
            block = None if block is self.block else block.outer

    @types.coroutine
    def drive(self, generator: Any) -> Any:
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


class PinnedFunction:
    """A function, and the pin under which it runs."""

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        self.function, self.name = function, name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        with PinnedBody(self.name) as body:
            return body.run(self.function, *args, **keywords)


def bind_current_pin(function: Callable[..., Any]) -> PinnedFunction:
    """Binds the active pin to a function. One that has a pin already keeps it."""
    return (
        function
        if isinstance(function, PinnedFunction)
        else PinnedFunction(function, current_pin_name())
    )
