"""What is pinned, and where. The state has a file of its own, so that reloading clampgrad.pin keeps it.

What is pinned is the name of a convention, or None for torch's own gradient. A block pins, from when it is
entered until it is left, the thread that entered it or, in an event loop, the task; where no block holds,
the process decides. Kernels ask, wherever an operator is called (csrc/pin, portable/kernels.py).

To enter a block is to make it the innermost, and to leave it is to close it: the innermost that is open
holds. Each is one store, after all that may fail, so nothing that is raised finds one half done.
"""

from __future__ import annotations

import os
import sys
import threading
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from clampgrad import _implementation
from clampgrad._implementation import Block

# ---- Locks ----------------------------------------------------------------------------------------------


def held_over_forks(lock: Any) -> Any:
    """Returns the lock, an RLock, which the thread that forks holds during the fork: a thread that held it in the
    parent is not there to release it in the child.

    Python calls the hooks of `before` in reverse: of two locks, the one that is made last is taken first.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


# ---- Blocks ----------------------------------------------------------------------------------------------


class _Thread(threading.local):
    """What each thread has. By its token, a context that was copied from another thread is recognised."""

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
    return block or opened(_implementation.pin_innermost())


def opened(block: Block | None) -> Block | None:
    """The block, or the one around it that is still open."""
    while block and not block.is_open:
        block = block.outer
    return block


def make_innermost(block: Block | None) -> Block | None:
    """Returns what was it before."""
    if not in_task():
        return _implementation.pin_make_innermost(block)
    before = innermost()
    _of_task.set((_thread.token, block))
    return before


def new_block(name: str | None, owner: object = None) -> Block:
    """A block around what runs now, and around the tasks that are started in it."""
    block = Block(name, innermost(), id(owner))
    if in_task():
        _thread.blocks_of_tasks.add(block)
        _implementation.pin_ask_in_this_thread(True)
    return block


def entered_by(owner: object) -> tuple[Block | None, bool]:
    """The last block that `owner` entered here, and whether it is the innermost."""
    inner = block = innermost()
    while block and not (block.owner == id(owner) and block.is_open):
        block = block.outer
    return block, block is not None and block is inner


def answer() -> Block | None:
    """What kernels are told in a thread that asks. Where no task is in a block any more, it stops asking."""
    if not any(map(opened, _thread.blocks_of_tasks)):
        _implementation.pin_ask_in_this_thread(False)
    return innermost()


def current() -> str | None:
    """What is pinned here; None for torch's own gradient."""
    return _implementation.pin_current()


_implementation.pin_ask(answer)

# ---- The process -----------------------------------------------------------------------------------------

enabled: list[str | None] = []  # the last one counts
set_to: str | None = None  # by set_pin; holds where nothing is enabled
lock = held_over_forks(threading.RLock())


def pin_process(now_enabled: list[str | None], now_set_to: str | None) -> None:
    """What is pinned from now on."""
    global enabled, set_to
    enabled, set_to = now_enabled, now_set_to
    _implementation.pin_process(enabled[-1] if enabled else set_to)
