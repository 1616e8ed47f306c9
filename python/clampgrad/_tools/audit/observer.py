"""What tells the open audits of each call of the clamp family: the kernels of the pin, whoever
calls them, in whatever thread, and under torch.func; and of what starts a thread."""

import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from clampgrad import _implementation
from clampgrad._pin.first_pin import hold_during_fork, register_kernels
from clampgrad._torch.quiet import is_quiet, quietly

Then = Callable[[Any], None]


class Observes(Protocol):
    def told(self, name: str, args: tuple[Any, ...]) -> Then | None:
        """Is told of a call, by the name of aten; returns what to do with its result, or None."""

    def follow_thread(self) -> None:
        """Is told of the thread that starts with this call."""


# Audits of several threads share what follows. A signal handler may open one inside another's.
_opening = hold_during_fork(threading.RLock())
_open: list[Observes] = []
_profiles: Any = None  # what threads had for a profile function before
_stance: Any = None  # by which compiled functions run uncompiled


def begin(audit: Observes) -> None:
    register_kernels()
    with _opening:
        _open.append(audit)
        try:
            if len(_open) == 1:
                _start()
        except BaseException:  # an interrupt
            end(audit)
            raise


def end(audit: Observes) -> None:
    with _opening:
        _open.remove(audit)
        if not _open:
            _stop()


def _start() -> None:
    """With the first audit. The last one stops it: they need not end in the order of a stack."""
    global _profiles, _stance
    _stance = torch.compiler.set_stance("force_eager")
    _implementation.pin_observe(_told)
    _profiles = threading.getprofile()
    threading.setprofile(_thread_starts)


def _stop() -> None:
    global _stance
    stance, _stance = _stance, None
    if stance is not None:
        stance.__exit__(None, None, None)
    _implementation.pin_observe(None)
    if threading.getprofile() is _thread_starts:
        threading.setprofile(_profiles)


def _told(name: str, args: tuple[Any, ...]) -> Then | None:
    if is_quiet():
        return None
    with quietly():
        thens = [then for audit in tuple(_open) if (then := audit.told(name, args))]
    if not thens:
        return None

    def tell(result: Any) -> None:
        with quietly():
            for then in thens:
                then(result)

    return tell


def _thread_starts(frame: Any, event: str, arg: Any) -> None:
    """The first event of a thread that was started during an audit. It keeps no profile function
    but the one that it would have had."""
    sys.setprofile(_profiles)
    for audit in tuple(_open):
        audit.follow_thread()
    if _profiles is not None:
        _profiles(frame, event, arg)
