"""The active pin, of a thread or of the process, as csrc/pin/pin.h has it in C++.

The functions whose names begin with pin_ are those of _C.pyi, which _pin/state.py calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar, NamedTuple
from weakref import ref

from clampgrad._contract.messages import MESSAGES
from clampgrad._implementation.portable.front_doors import resolve_convention
from clampgrad._torch import thread_state

# Not `process_pin_name` and `block_resolver`, which are rebound: copies would stay what they were.
__all__ = [
    "Block",
    "pin_canonical_name",
    "pin_current",
    "pin_set_block_resolver",
    "pin_set_process",
    "pin_set_resolver_enabled",
    "pin_set_thread_block",
    "pin_thread_block",
]


class Block:
    """A pin from the time it is entered until it is left, and the outer block."""

    # The blocks that exist. While there are none, a call does not look at the state of its
    # thread. No Python code runs when a block is destroyed.
    alive: ClassVar[set[ref[Block]]] = set()

    def __init__(self, name: str | None, outer: Block | None, owner: int, /) -> None:
        self.name, self.outer, self.owner = name, outer, owner
        self.thread = threading.get_ident()
        self.is_open = True
        self.alive.add(ref(self, self.alive.discard))
        # csrc/pin/pin.h, Note [Blocks of tasks that start each other]
        if outer and outer.is_of_this_thread:
            outer.outer = find_open_block(outer.outer)

    @property
    def is_of_this_thread(self) -> bool:
        return self.thread == threading.get_ident()

    def assign_to_this_thread(self) -> None:
        self.thread = threading.get_ident()


class ThreadPin(NamedTuple):
    """The pin of a thread, which torch copies to the threads that work for it (csrc/pin/pin.h, Note
    [A block travels])."""

    block: Block | None = None
    resolver_thread: int | None = None  # the thread whose tasks have blocks

    def needs_resolver(self) -> bool:
        """Whether tasks of this thread have blocks."""
        return self.resolver_thread is not None


NO_PIN = ThreadPin()
process_pin_name: str | None = None
block_resolver: Callable[[], Block | None]


def get_thread_pin() -> ThreadPin:
    return thread_state.get_thread_value() or NO_PIN


def get_resolvable_pin() -> ThreadPin:
    """Returns the pin of this thread. Raises an error if the pin is that of tasks of another
    thread, which only that thread can resolve."""
    pin = get_thread_pin()
    if pin.resolver_thread not in (None, threading.get_ident()):
        raise RuntimeError(MESSAGES["kTaskOfOtherThread"])
    return pin


def set_thread_pin(block: Block | None, resolver_thread: int | None) -> None:
    if block or resolver_thread is not None:
        thread_state.set_thread_value(ThreadPin(block, resolver_thread))
    elif thread_state.get_thread_value():
        thread_state.set_thread_value(None)


def find_open_block(block: Block | None) -> Block | None:
    """Returns the first block, from this one outwards, that is open or belongs to another thread:
    work that torch does for that thread keeps its pin after the block was left."""
    while block and not block.is_open and block.is_of_this_thread:
        block = block.outer
    return block


def pin_canonical_name(gradient: str, maximize: bool, /) -> str:
    return resolve_convention(gradient, maximize) + ", maximize" * maximize


def active_thread_block(pin: ThreadPin) -> Block | None:
    """Returns the active block of this thread, and drops closed ones from the thread state, which
    torch would copy to other threads. They are left there if a block was closed in a hook, around
    which torch swaps the state, or in an event loop."""
    block = find_open_block(pin.block)
    if block is not pin.block:
        set_thread_pin(block, pin.resolver_thread)
    return block


def pin_thread_block() -> Block | None:
    # Does not drop closed blocks: leaving a block must not need a deeper stack than entering it, so
    # that blocks can be left after a RecursionError.
    return find_open_block(get_resolvable_pin().block)


def pin_set_thread_block(block: Block | None, /) -> Block | None:
    pin = get_resolvable_pin()
    set_thread_pin(block, pin.resolver_thread)
    return pin.block


def pin_set_process(name: str | None, /) -> None:
    global process_pin_name
    process_pin_name = name


def pin_set_block_resolver(resolver: Callable[[], Block | None], /) -> None:
    global block_resolver
    block_resolver = resolver


def pin_set_resolver_enabled(enabled: bool, /) -> None:
    pin, thread = get_thread_pin(), threading.get_ident() if enabled else None
    is_other = pin.resolver_thread not in (None, threading.get_ident())
    if pin.resolver_thread != thread and (enabled or not is_other):
        set_thread_pin(pin.block, thread)


def pin_current() -> str | None:
    if not Block.alive:
        return process_pin_name
    pin = get_resolvable_pin()
    block = block_resolver() if pin.needs_resolver() else active_thread_block(pin)
    return block.name if block else process_pin_name
