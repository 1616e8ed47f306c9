"""The state of pins: what is pinned, and where.

A pin is the name of a convention, or None for torch's own gradient. From when a block is entered until it is
left, it pins the thread that entered it or, in an event loop, the task, and the work that torch's own threads do
for them; where no block holds, the pin of the process does. Kernels ask wherever an operator is called (csrc/pin,
portable/kernels.py).

Entering a block makes it the innermost, and leaving closes it: the innermost that is open holds. Each is one
store, after all that may fail, so an exception finds neither half done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar
from weakref import WeakSet

from clampgrad import _implementation
from clampgrad._implementation import Block
from clampgrad._torch.compiler import leave_to_callers, leave_uncompiled
from clampgrad._torch.engine import call_backward_by

Result = TypeVar("Result")


class _Thread(threading.local):
    """The state of a thread. Its token shows whether a context was copied from another thread."""

    def __init__(self) -> None:
        self.token = object()
        # They are held weakly, for a task may end without leaving its block.
        self.blocks_of_tasks: WeakSet[Block] = WeakSet()


_thread = _Thread()
# Tasks have a context each, and start with a copy of that of the task which starts them.
_of_task: ContextVar[tuple[object, Block | None]] = ContextVar("clampgrad.pin")


def in_task() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def innermost() -> Block | None:
    """The block that holds here."""
    block = None
    if in_task():
        token, block = _of_task.get((None, None))
        block = opened(block) if token is _thread.token else None
    return block or _implementation.pin_innermost()


def opened(block: Block | None) -> Block | None:
    """The block, or the one around it that is still open."""
    while block and not block.is_open:
        block = block.outer
    return block


def make_innermost(block: Block | None) -> Block | None:
    """Returns the former innermost block."""
    if not in_task():
        return _implementation.pin_make_innermost(block)
    before = innermost()
    _of_task.set((_thread.token, block))
    return before


def new_block(name: str | None, owner: object = None) -> Block:
    """A block around what runs now, and around the tasks that are started in it."""
    block = Block(name, innermost(), id(owner))
    if in_task():
        follow_tasks()
        _thread.blocks_of_tasks.add(block)
        _implementation.pin_ask_in_this_thread(True)
    return block


def entered_by(owner: object) -> tuple[Block | None, bool]:
    """The last block that `owner` entered here, and whether it is the innermost."""
    inner = block = innermost()
    while block and not (block.owner == id(owner) and block.is_open and block.is_of_this_thread):
        block = block.outer
    return block, block is not None and block is inner


def a_task_is_in_a_block() -> bool:
    """Whether a task of this thread is. While one is, kernels ask."""
    blocks = _thread.blocks_of_tasks
    return bool(blocks) and any(map(opened, blocks))


def answer() -> Block | None:
    """What kernels are told in a thread that asks. Where no task is in a block any more, it stops asking."""
    if not a_task_is_in_a_block():
        _implementation.pin_ask_in_this_thread(False)
    return innermost()


def tidy() -> None:
    """After a block was closed: this thread does not hand it on, and no longer asks if no task needs that."""
    if in_task():
        answer()
        current()  # lets go of a block of the thread itself
    else:
        make_innermost(innermost())


@cache
def follow_tasks() -> None:
    """From the first block of a task on, backward has the pin of the task that calls it."""
    call_backward_by(handing_on)


def handing_on(function: Callable[..., Result], *args: Any, **keywords: Any) -> Result:
    """Calls what has other threads work for this one. They cannot ask for a task: its block goes with the work."""
    if not a_task_is_in_a_block():
        _implementation.pin_ask_in_this_thread(False)
        return function(*args, **keywords)
    block = innermost()
    outside = _implementation.pin_innermost()
    try:
        _implementation.pin_ask_in_this_thread(False)
        _implementation.pin_make_innermost(block)
        return function(*args, **keywords)
    finally:
        _implementation.pin_ask_in_this_thread(a_task_is_in_a_block())
        _implementation.pin_make_innermost(outside)


# What is pinned here, by name; None for torch's own gradient.
current = _implementation.pin_current


def pin_process(name: str | None) -> None:
    """What is pinned where no block holds."""
    _implementation.pin_process(name)


_implementation.pin_ask(answer)
# A compiled function that pins the process breaks its graph: what comes after it runs under the pin.
leave_uncompiled(__name__, "pin_process")
leave_to_callers(__name__)  # which kernels ask
