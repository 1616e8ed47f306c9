"""Which pin holds where. The state has a file of its own, so that reloading clampgrad.pin keeps it.

A pin is a number, its code (csrc/pin/pin.h). A block belongs to the task that entered it, or to the
thread where there are no tasks: blocks are a chain in a context variable, and the innermost one holds.
Kernels do not read context variables. The implementation keeps a code per thread for them: that of the
innermost block or, while a task of the thread is in a block, ASK, which makes it call `_answer`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from weakref import WeakSet, ref

from clampgrad import _implementation
from clampgrad._pin.forks import held_over_forks

ASK, UNSET, TORCHS_OWN = -1, 0, _implementation.pin_code(None, False)


class Block:
    """A pin that holds until it is left, and the block around it."""

    def __init__(self, code: int, outer: Block | None = None, owner: object = None) -> None:
        self.code, self.outer, self.owner = code, outer, owner
        self.is_open = True


class _Thread(threading.local):
    """What each thread has. By its token, a context that was copied from another thread is recognised."""

    def __init__(self) -> None:
        self.token = object()
        # Open blocks. They are held weakly, for a task may end without leaving its block.
        self.blocks_of_tasks: WeakSet[Block] = WeakSet()
        # The block that was entered or come back to last.
        self.told: Callable[[], Block | None] = lambda: None


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


def current() -> str | None:
    """The name of the pin that holds here; None for torch's own gradient."""
    return _implementation.pin_name(_implementation.pin_current())


def _code_here() -> int:
    block = innermost()
    return block.code if block else UNSET


def _answer() -> int:
    """The code that holds. Where no task is in a block any more, the thread also stops asking."""
    if not _thread.blocks_of_tasks:
        _tell_thread()
    return _code_here()


def _tell_thread() -> None:
    _implementation.pin_thread(ASK if _thread.blocks_of_tasks else _code_here())


def swap(block: Block | None) -> Block | None:
    """Makes `block` the innermost; returns what it was."""
    before, told = innermost(), _thread.told()
    if told and told.is_open and told is not before:
        # Another context runs (contextvars.Context.run, a task), which knows nothing of that block. The
        # block holds again when its context goes on, of which nobody tells us.
        _thread.blocks_of_tasks.add(told)
    _chain.set((_thread.token, block))
    _thread.told = ref(block) if block else lambda: None
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

    It ends in any case, also for tasks that were started in it, so that no thread stays pinned.
    """
    inner = block = innermost()
    while block and not (block.owner is owner and block.is_open):
        block = block.outer
    if not block:
        raise RuntimeError(f"{owner!r} is not entered here")
    close(block)
    return block is inner


# ---- The process -----------------------------------------------------------------------------------------

enabled: list[int] = []  # the last one counts
set_to = UNSET  # by set_pin; holds where nothing is enabled
lock = held_over_forks(threading.RLock())


def pin_process(now_enabled: list[int], now_set_to: int) -> None:
    """What is pinned from now on. If the implementation raises (a warning that is an error), all stays."""
    global enabled, set_to
    _implementation.pin_process(now_enabled[-1] if now_enabled else now_set_to)
    enabled, set_to = now_enabled, now_set_to


_implementation.pin_ask(_answer)
