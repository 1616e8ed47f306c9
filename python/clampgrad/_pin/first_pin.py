"""The first pin of a process installs hooks in torch, all or none.

- backward: code that calls a function again in backward does so under the pin of the forward;
- compiled_code: compiled code is guarded by its pin, and looked up in caches by it;
- the kernels that the Python dispatcher, with which compilers trace, has cached are dropped.

The hooks stay when the last pin is gone, because a call that was recorded without a pin has to stay
without one. They change internals of torch. Everything is checked before the first change: in a
release that differs, the first pin raises an error, and nothing is changed.
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
from clampgrad._pin.backward import replacements_in_checkpoint, replacements_in_operators
from clampgrad._pin.compiled_code import (
    add_pin_to_cache_keys,
    guard_compiled_code,
    refuse_code_without_guard,
)
from clampgrad._pin.state import current_pin_name
from clampgrad._torch import after_import, compiler
from clampgrad._torch.after_import import get_if_imported, when_imported
from clampgrad._torch.replacements import Replacement, apply_replacements

# Functions that return what is replaced in a module of torch. Each checks it, and replaces nothing.
REPLACEMENTS: dict[str, Callable[[Any], list[Replacement]]] = {
    "torch.utils.checkpoint": replacements_in_checkpoint,
    "torch._higher_order_ops": replacements_in_operators,
    "torch._inductor.codecache": add_pin_to_cache_keys,
    "torch._dynamo.aot_compile": refuse_code_without_guard,
    "torch._dynamo.guards": guard_compiled_code,
}


def hold_during_fork(lock: Any) -> Any:
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
# Held while functions are replaced, and never while something is imported.
_replacement_lock = hold_during_fork(threading.RLock())
# Held while hooks are installed, and taken before _replacement_lock, at a fork too.
_install_lock = hold_during_fork(threading.RLock())


def replace_in_module(module: ModuleType) -> None:
    """Replaces functions in a module that is imported after the first pin.

    Under a pin, which could not hold in it, a failure ends the import. Without one it is a warning,
    and the next pin fails instead.
    """
    global _done
    try:
        with _replacement_lock, apply_replacements(REPLACEMENTS[module.__name__](module)):
            pass
    except Exception as error:
        _done = False
        if current_pin_name() is not None:
            raise after_import.Refused(
                f"{error}; the pin {current_pin_name()!r} cannot hold there"
            ) from error
        raise


def ensure_hooks_installed() -> None:
    """Installs the hooks, unless they are installed. If that fails, torch is as it was."""
    if not _done:
        install_hooks_under_locks()


def install_hooks_under_locks() -> None:
    """Installs the hooks in one thread, for which others wait.

    Takes our lock, then tries the compiler's without waiting: a thread that compiles holds the
    compiler's lock, and may be waiting here for ours. No thread holds the compiler's lock without
    ours, which a fork takes, so no child finds the compiler locked by a thread of the parent.
    """
    while not _done:
        with _install_lock:
            lock = compiler.lock()
            if lock.acquire(blocking=False):
                try:
                    install_hooks()
                finally:
                    lock.release()
                return
        time.sleep(0.001)


def install_hooks() -> None:
    global _done
    if _done:
        return
    with (
        after_import.registered_action(REPLACEMENTS, replace_in_module),
        ExitStack() as undone_if_the_rest_fails,
    ):
        dynamo = get_if_imported("torch._dynamo")
        modules = {name: module for name in REPLACEMENTS if (module := get_if_imported(name))}
        with _replacement_lock:
            compiler.dispatch_cache_of("aten::clamp")
            if dynamo:
                compiler.reset_precompiled()
            replacements = [r for name in modules for r in REPLACEMENTS[name](modules[name])]
            undone_if_the_rest_fails.enter_context(apply_replacements(replacements))
        if dynamo:
            compiler.drop_compiled()  # what was compiled so far has no guard
        register_kernels()  # last, because kernels stay registered
    _done = True


def register_kernels() -> None:
    """Registers the kernels. An audit needs these, and no other hook."""
    with _install_lock:
        for name in _implementation.pin_register_kernels():
            compiler.dispatch_cache_of(name).clear()


# A graph may have our operators where nothing was ever pinned.
when_imported("torch._inductor.codecache", replace_in_module)
# A first pin inside a compiled function breaks its graph, and nothing that it does is compiled.
compiler.disable_compilation(__name__, "install_hooks_under_locks")
