"""Announces each call of the clamp family to the open audits: through the kernels of the pin, so
whoever calls, in whatever thread, and under torch.func. Announces each thread that starts, too."""

import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch

from clampgrad import _implementation
from clampgrad._pin.first_pin import hold_during_fork, register_kernels
from clampgrad._torch.quiet import is_quiet, quietly

# What is to be done with the result of a call, once there is one.
ResultHandler: TypeAlias = Callable[[Any], None]


class Observer(Protocol):
    """An audit, as this file calls it."""

    def observe_call(self, name: str, args: tuple[Any, ...]) -> ResultHandler | None:
        """Runs before a call, whose name is that of aten."""

    def follow_thread(self) -> None:
        """Runs in a thread that starts during the audit."""


# Audits of several threads share what follows. A signal handler may open one inside another's.
_opening = hold_during_fork(threading.RLock())
_open: list[Observer] = []
_threads_profile: Any = None  # the profile function that threads had without an audit
_stance: Any = None  # by which compiled functions run uncompiled


def begin(audit: Observer) -> None:
    register_kernels()
    with _opening:
        _open.append(audit)
        try:
            if len(_open) == 1:
                _start()
        except BaseException:  # an interrupt
            end(audit)
            raise


def end(audit: Observer) -> None:
    with _opening:
        _open.remove(audit)
        if not _open:
            _stop()


def _start() -> None:
    """Runs with the first audit. The last one calls _stop(): audits need not end in the order of a
    stack."""
    global _threads_profile, _stance
    _stance = torch.compiler.set_stance("force_eager")
    _implementation.pin_observe(_observe_call)
    _threads_profile = threading.getprofile()
    threading.setprofile(_follow_thread)


def _stop() -> None:
    global _stance
    stance, _stance = _stance, None
    if stance is not None:
        stance.__exit__(None, None, None)
    _implementation.pin_observe(None)
    if threading.getprofile() is _follow_thread:
        threading.setprofile(_threads_profile)


def _observe_call(name: str, args: tuple[Any, ...]) -> ResultHandler | None:
    if is_quiet():
        return None
    with quietly():
        handlers = [h for audit in tuple(_open) if (h := audit.observe_call(name, args))]
    if not handlers:
        return None

    def handle_result(result: Any) -> None:
        with quietly():
            for handler in handlers:
                handler(result)

    return handle_result


def _follow_thread(frame: Any, event: str, arg: Any) -> None:
    """Runs at the first event of a thread that starts during an audit. From then on, the thread has
    the profile function that it would have had."""
    sys.setprofile(_threads_profile)
    for audit in tuple(_open):
        audit.follow_thread()
    if _threads_profile is not None:
        _threads_profile(frame, event, arg)
