"""Which pin holds where: what is behind clampgrad.pin, apart so that its state outlives that module.

A pin is a number, its code (csrc/pin/pin.h). A block belongs to the task that entered it, or to the
thread where there are no tasks. So the blocks are a chain in a context variable, and what holds in a
thread is the innermost of its chain. Kernels do not read context variables: the thread is told the
code, or, while one of its tasks is in a block, told to ask.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from clampgrad import _implementation
from clampgrad._at_fork import held_over_forks

ASK, UNSET, TORCHS_OWN = -1, 0, _implementation.pin_code(None, False)


class Block:
    """A pin that holds until it is left, and the block around it."""

    def __init__(self, code: int, outer: Block | None = None, owner: object = None) -> None:
        self.code, self.outer, self.owner = code, outer, owner
        self.is_open = True


class _Thread(threading.local):
    """One per thread. A context that was copied from another thread is told apart by it."""

    def __init__(self) -> None:
        self.token = object()
        # Open ones. A task that ends without leaving its block takes the block with it.
        self.blocks_of_tasks: WeakSet[Block] = WeakSet()


_thread = _Thread()
_chain: ContextVar[tuple[object, Block | None]] = ContextVar("clampgrad.pin", default=(None, None))


def innermost() -> Block | None:
    """The block that holds here."""
    token, block = _chain.get()
    if token is not _thread.token:
        return None
    while block and not block.is_open:
        block = block.outer
    return block


def _code_here() -> int:
    block = innermost()
    return block.code if block else UNSET


def _answer() -> int:
    """What a thread that asks is told, and that it need not ask again if no task is in a block."""
    if not _thread.blocks_of_tasks:
        _tell_thread()
    return _code_here()


def _tell_thread() -> None:
    _implementation.pin_thread(ASK if _thread.blocks_of_tasks else _code_here())


def swap(block: Block | None) -> Block | None:
    """Makes `block` the innermost; returns what it was."""
    before = innermost()
    _chain.set((_thread.token, block))
    _tell_thread()
    return before


def _an_event_loop_runs() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def opened(code: int, owner: object = None) -> Block:
    """A block around what runs now, and around the tasks that are started in it, until it is closed."""
    block = Block(code, innermost(), owner)
    if _an_event_loop_runs():
        _thread.blocks_of_tasks.add(block)
    return block


def close(block: Block) -> None:
    block.is_open = False
    _thread.blocks_of_tasks.discard(block)
    swap(innermost())


def enter(code: int, owner: object) -> None:
    swap(opened(code, owner))


def leave(owner: object) -> bool:
    """Ends the last block that `owner` entered here; whether it was the innermost.

    It ends in any case, also for the tasks that were started in it: no thread stays pinned.
    """
    inner = block = innermost()
    while block and not (block.owner is owner and block.is_open):
        block = block.outer
    if not block:
        raise RuntimeError(f"{owner!r} is not entered here")
    close(block)
    return block is inner


# ---- Code that runs later, or bit by bit -----------------------------------------------------------------


class Remembered:
    """A function and the pin that it runs under; without a code, the one that holds now."""

    def __init__(self, function: Callable[..., Any], code: int | None = None) -> None:
        self.function = function
        self.code = _implementation.pin_current() if code is None else code

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        block = opened(self.code)
        outside = swap(block)
        try:
            return self.function(*args, **keywords)
        finally:
            swap(outside)
            close(block)


def steps(code: int, body: Any) -> Generator[Any, Any, Any]:
    """Runs a generator or a coroutine under a pin, which holds only while `body` itself runs."""
    block = opened(code)
    inside: Block | None = block  # then whatever blocks the body is in
    resume, value = body.send, None
    try:
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
    finally:
        close(block)


class Awaitable:
    """A coroutine whose every step runs under a pin."""

    def __init__(self, code: int, coroutine: Any) -> None:
        self.code, self.coroutine = code, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return steps(self.code, self.coroutine)


# ---- The process -----------------------------------------------------------------------------------------

enabled: list[int] = []  # the last one counts
set_to = UNSET  # by set_pin; holds where nothing is enabled
lock = held_over_forks(threading.RLock())


def set_enabled() -> None:
    _implementation.pin_process(enabled[-1] if enabled else set_to)


_implementation.pin_ask(_answer)
