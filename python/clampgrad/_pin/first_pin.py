"""The first pin of a process tells torch about pins, all parts of it or none.

- backward: what calls a function again in backward does so under the pin of the forward;
- compiled_code: compiled code is guarded by its pin, and found in caches by it;
- the Python dispatcher, which compilers trace with, keeps the kernel of each operator: these are
  dropped.

The changes stay when the last pin is gone, because what was recorded without a pin has to stay
without one. All of this is internal to torch. Everything is checked before the first change: in a
release that differs, the first pin raises, and nothing is changed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from clampgrad import _implementation
from clampgrad._pin.backward import remember_in_checkpoints, remember_in_operators
from clampgrad._pin.compiled_code import guard_compiled_code, key_caches, refuse_code_without_guard
from clampgrad._pin.state import current
from clampgrad._torch import after_import, compiler
from clampgrad._torch.after_import import imported, when_imported
from clampgrad._torch.changes import Change, made

# How a module of torch is to change. Each checks what it is about to change, and changes nothing.
CHANGES: dict[str, Callable[[Any], list[Change]]] = {
    "torch.utils.checkpoint": remember_in_checkpoints,
    "torch._higher_order_ops": remember_in_operators,
    "torch._inductor.codecache": key_caches,
    "torch._dynamo.aot_compile": refuse_code_without_guard,
    "torch._dynamo.guards": guard_compiled_code,
}


def held_over_forks(lock: Any) -> Any:
    """Returns the lock, an RLock, which the thread that forks holds during the fork: a thread that
    held it in the parent is not there to release it in the child.

    Python calls the hooks of `before` in reverse: of two locks, the one
    that is made last is taken first.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


_done = False
# Held while torch is changed, and never while something is imported.
_changing = held_over_forks(threading.RLock())
# Held while torch is told, and taken before _changing, at a fork too.
_first = held_over_forks(threading.RLock())


def at_import(module: ModuleType) -> None:
    """Changes a module that is imported after the first pin.

    Under a pin, which could not hold in it, a failure ends the import. Without one it is a warning,
    and the next pin fails instead.
    """
    global _done
    try:
        with _changing, made(CHANGES[module.__name__](module)):
            pass
    except Exception as error:
        _done = False
        if current() is not None:
            raise after_import.Refused(
                f"{error}; the pin {current()!r} cannot hold there"
            ) from error
        raise


def tell_torch() -> None:
    """Called before every pin, until it has succeeded once. If it fails, torch is as it was."""
    if not _done:
        tell_in_turn()


def tell_in_turn() -> None:
    """One thread tells torch; others wait for it.

    It needs two locks, ours and the compiler's. A thread that compiles holds the
    compiler's and may come here, so nobody who holds ours waits for the compiler's. And
    nobody keeps the compiler's without ours, which a fork takes: so no child finds the
    compiler locked by a thread of the parent.
    """
    while not _done:
        with _first:
            lock = compiler.lock()
            if lock.acquire(blocking=False):
                try:
                    tell_once()
                finally:
                    lock.release()
                return
        time.sleep(0.001)


def tell_once() -> None:
    global _done
    if _done:
        return
    with after_import.acting(CHANGES, at_import), ExitStack() as undone_if_the_rest_fails:
        dynamo = imported("torch._dynamo")
        modules = {name: module for name in CHANGES if (module := imported(name))}
        with _changing:
            compiler.kept_kernels("aten::clamp")
            if dynamo:
                compiler.reset_precompiled()
            changes = [change for name in modules for change in CHANGES[name](modules[name])]
            undone_if_the_rest_fails.enter_context(made(changes))
        if dynamo:
            compiler.drop_compiled()  # what was compiled so far has no guard
        register_kernels()  # last: they stay registered
    _done = True


def register_kernels() -> None:
    """For an audit, too, which needs nothing else of all this."""
    with _first:
        for name in _implementation.pin_register():
            compiler.kept_kernels(name).clear()


# A graph may have our operators where nothing was ever pinned.
when_imported("torch._inductor.codecache", at_import)
# A first pin inside a compiled function breaks its graph, and nothing that it does is compiled.
compiler.leave_uncompiled(__name__, "tell_in_turn")
