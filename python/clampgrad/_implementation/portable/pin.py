"""The pin, for calls that go through Python.

A mode of torch sees every call of torch's functions and methods that the thread makes. It does not
see what torch calls by itself: in C++, inside functions of torch.nn.functional and torch's other
functions in Python, in TorchScript and in graphs that were captured earlier. There torch's own
gradient stays; the compiled implementation pins those as well. So that the two never differ in
silence, functions of torch that are known to clamp inside (BY_ITSELF) raise an error under a pin, unless
the pin was asked for with `partial=True`.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from clampgrad._contract.table import CONVENTIONS
from clampgrad._implementation.portable.functions import recorded, resolved
from clampgrad._implementation.portable.pinned_calls import BY_ITSELF, PINNED, name_of, refuse
from clampgrad._torch.after_import import when_imported
from clampgrad._torch.function_modes import is_on, put_below, take_off
from clampgrad._torch.surroundings import replace_backward

# A code: what the function of pin_ask says, nothing, torch's own gradient, or FIRST + four times the
# convention + PARTIAL + maximize.
PARTIAL = 2
ASK, UNSET, TORCHS_OWN, FIRST = -1, 0, 1, 2


class Here(threading.local):
    """The pin of this thread, and whether it has the pin of the process."""

    code = UNSET
    has_process = False


here = Here()
of_process = UNSET
asked: Callable[[], int]


def pin_code(gradient: str | None, maximize: bool, /) -> int:
    if gradient is not None:
        return FIRST + 4 * CONVENTIONS.index(resolved(gradient, maximize)) + maximize
    if maximize:
        raise ValueError("maximize=True does not apply to torch's own gradient")
    return TORCHS_OWN


def pin_partial(code: int, /) -> int:
    return code if code < FIRST else FIRST + (code - FIRST | PARTIAL)


def pin_name(code: int, /) -> str | None:
    if code < FIRST:
        return None
    index, words = divmod(code - FIRST, 4)
    return CONVENTIONS[index] + ", maximize" * (words & 1) + ", partial" * (words // PARTIAL)


def pin_current() -> int:
    code = asked() if here.code == ASK else here.code
    return code or (of_process if here.has_process else UNSET) or TORCHS_OWN


def pin_thread(code: int, /) -> int:
    before, here.code = here.code, code
    watch()
    return before


def pin_process(code: int, /) -> int:
    global of_process
    if code >= FIRST and threading.active_count() > 1:
        warnings.warn(
            "the portable implementation of clampgrad pins the thread that asks for it and those that "
            "are started later: other threads of this process keep torch's own gradient",
            stacklevel=4,
        )
    before, of_process = of_process, code
    watch()
    if (before == UNSET) != (code == UNSET):
        at_start_of_threads(before == UNSET)
    return before


class AtStart:
    """The profiler that threading starts in every new thread: puts the mode on, and the thread's own
    profiler in its place."""

    def __init__(self, profiler: Any) -> None:
        self.profiler = profiler

    def __call__(self, *_: object) -> None:
        sys.setprofile(self.profiler)
        watch()


def at_start_of_threads(on: bool) -> None:
    hook = threading.getprofile()
    if on:
        threading.setprofile(AtStart(hook))
    elif isinstance(hook, AtStart):  # no profiler came after it
        threading.setprofile(hook.profiler)


def pin_ask(function: Callable[[], int], /) -> None:
    global asked
    asked = function


def pin_register() -> list[str]:
    """No kernel is another, but the engine of autograd runs backward under the pin."""

    def run_backward(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # torch.Tensor.backward is a function that the mode saw, and is off in. What backward calls
        # (the forward of a checkpoint, a function's own backward) is pinned like any other.
        if pin_current() < FIRST or pin_is_on():
            return run(*args, **kwargs)
        with Mode():
            return run(*args, **kwargs)

    replace_backward(run_backward)
    return []


def pin_here() -> str | None:
    return pin_name(pin_current())


# Dynamo traces the mode. It calls this function instead of tracing it, because up to 2.11 it reads the
# attributes of a threading.local from the class. The result may be a constant of compiled code, which is
# guarded by the pin (_pin/compiled_code.py).
when_imported("torch._dynamo", lambda _: torch.compiler.assume_constant_result(pin_here))


# Operators of Dynamo that call what it has traced where the mode is off: what a program wrote for them.
TRACED_APART = {
    "invoke_subgraph": "nested_compile_region",
    "tag_activation_checkpoint": "a checkpoint that is compiled",
}


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            name, pinned = pin_here(), PINNED.get(func)
            if name is None:
                return func(*args, **kwargs or {})
            gradient, *words = name.split(", ")
            if pinned is None:
                if "partial" not in words:
                    operator = (
                        "" if isinstance(func, FunctionType) else getattr(func, "__name__", "")
                    )
                    # It may use what is no argument of it.
                    if operator in TRACED_APART and torch.is_grad_enabled():
                        refuse(TRACED_APART[operator])
                    if func in BY_ITSELF and recorded((*args, *(kwargs or {}).values())):
                        refuse(BY_ITSELF[func])
                return func(*args, **kwargs or {})
            given = {name_of(k, func): v for k, v in (kwargs or {}).items()}
            return pinned(func, gradient, "maximize" in words, *args, **given)
        finally:
            if is_on(Mode):
                take_off(Mode)  # by a pin inside, where this one was off


def watch() -> None:
    """Has the mode on while there is something to pin."""
    here.has_process = True
    wanted = here.code == ASK or pin_current() >= FIRST
    if wanted and not pin_is_on():
        put_below(Mode())
    elif not wanted and pin_is_on():
        take_off(Mode)


def pin_is_on() -> bool:
    """Whether calls are seen here: torch takes all modes off for some of its operators."""
    return is_on(Mode)
