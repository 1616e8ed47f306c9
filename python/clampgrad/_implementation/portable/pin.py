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
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

import clampgrad
from clampgrad._contract.table import CONVENTIONS, PSEUDO
from clampgrad._implementation.portable.forward import assign, to_be_written
from clampgrad._implementation.portable.functions import recorded, resolved
from clampgrad._torch.after_import import when_imported
from clampgrad._torch.changes import original, replacing

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
    """What every thread of the module threading calls first, by way of the hook for profilers."""

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
    run = original(torch.autograd._engine_run_backward)

    @replacing(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # torch.Tensor.backward is a function that the mode saw, and is off in. What backward calls
        # (the forward of a checkpoint, a function's own backward) is pinned like any other.
        if pin_current() < FIRST or is_on():
            return run(*args, **kwargs)
        with Mode():
            return run(*args, **kwargs)

    torch.autograd._engine_run_backward = run_backward
    return []


def pin_here() -> str | None:
    return pin_name(pin_current())


# Dynamo, which traces the mode, calls it and does not look into it: up to 2.11 it sees the attributes of a
# thread's own as those of the class. What it compiles is guarded by the pin (_pin/first_pin.py).
when_imported("torch._dynamo", lambda _: torch.compiler.assume_constant_result(pin_here))


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            name, pinned = pin_here(), PINNED.get(func)
            if name is None:
                return func(*args, **kwargs or {})
            gradient, *words = name.split(", ")
            if pinned is None:
                if func in BY_ITSELF and "partial" not in words:
                    refuse(BY_ITSELF[func], args, kwargs or {})
                return func(*args, **kwargs or {})
            given = {"input" if k == "self" else k: v for k, v in (kwargs or {}).items()}
            return pinned(func, gradient, "maximize" in words, *args, **given)
        finally:
            if is_on():
                take_off()  # by a pin inside, where this one was off


def watch() -> None:
    """Has the mode on while there is something to pin."""
    here.has_process = True
    wanted = here.code == ASK or pin_current() >= FIRST
    if wanted and not is_on():
        put_on()
    elif not wanted and is_on():
        take_off()


def is_on() -> bool:
    return any(isinstance(mode, Mode) for mode in _get_current_function_mode_stack())


def put_on() -> None:
    """Below the others, for a mode that ends takes off the topmost; torch wants its default device lowest."""
    others = off()
    if others and others[-1] is getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None):
        _push_mode(others.pop())
    for mode in (Mode(), *reversed(others)):
        _push_mode(mode)


def take_off() -> None:
    for mode in reversed(off()):
        if not isinstance(mode, Mode):
            _push_mode(mode)


def off() -> list[TorchFunctionMode]:
    """All modes, which are off from now on, the topmost first."""
    return [_pop_mode() for _ in _get_current_function_mode_stack()]


# ---- What the mode does not see ------------------------------------------------------------------------

# Functions of torch that are composed of a clamp or its kin (test/test_pin_reach.py finds them).
COMPOSED = (
    *("normalize", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss"),
    *("triplet_margin_loss", "triplet_margin_with_distance_loss", "corrcoef"),
)
BY_ITSELF: dict[Any, str] = {}
for composed in COMPOSED:
    for namespace in (F, torch, Tensor, torch.ops.aten):
        if function := getattr(namespace, composed, None):
            BY_ITSELF[function] = composed
    if packet := getattr(torch.ops.aten, composed, None):
        BY_ITSELF.update({getattr(packet, o): composed for o in packet.overloads()})

PIN_MISSES = (
    "the portable implementation reaches the calls that a program makes in Python, and not those inside "
    f"torch's own functions ({', '.join(COMPOSED)}), of C++ extensions, TorchScript, graphs that were "
    "captured before, and threads that run already"
)


def refuse(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises where a gradient is recorded that the pin should decide and does not."""
    if recorded((*args, *kwargs.values())):
        raise RuntimeError(
            f"clampgrad.pin: the portable implementation does not reach the clamp inside {name}. Take the "
            "pin off around this call (`with clampgrad.pin(None)`), accept torch's own gradient there "
            "(partial=True), or use the compiled implementation"
        )


reached: Counter[str] = Counter()


def count(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call that the pin reaches. Dynamo would guard compiled code by the number."""
    if not is_compiling() and recorded((*args, *kwargs.values())):
        reached[f"aten::{name}"] += 1


def pin_reached() -> dict[str, int]:
    return dict(reached)


# ---- What is called in place of torch's own ------------------------------------------------------------

OPERATORS = type(torch.ops.aten.clamp), type(torch.ops.aten.clamp.default)


def torchs_own(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Operators of aten call their first argument self."""
    if "input" in kwargs and (isinstance(func, OPERATORS) or "_foreach_" in func.__name__):
        kwargs["self"] = kwargs.pop("input")
    return func(*args, **kwargs)


def clamp(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        bounds = [b for b in (*args[1:], kwargs.get("min"), kwargs.get("max")) if b is not None]
        if len({isinstance(b, Tensor) for b in bounds}) == 2:
            # Beside a number torch takes a Tensor without a dimension for one, and no other.
            if any(isinstance(b, Tensor) and (b.dim() or b.requires_grad) for b in bounds):
                return torchs_own(func, *args, **kwargs)  # which raises
            args = args[:1] + tuple(map(number, args[1:]))
            kwargs = {k: b if k == "out" else number(b) for k, b in kwargs.items()}
        count(name, args, kwargs)
        return getattr(clampgrad, name)(*args, **kwargs, gradient=gradient, maximize=maximize)

    return call


def number(bound: Any) -> Any:
    return bound.item() if isinstance(bound, Tensor) else bound


def extremum(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        """torch.max with two Tensors is torch.maximum, and with anything else it is not."""
        given = dict(zip(("input", "other"), args)) | kwargs
        pair = isinstance(given.get("other"), Tensor) and set(given) <= {"input", "other", "out"}
        if gradient in PSEUDO or not pair:
            return torchs_own(func, *args, **kwargs)
        count(name, (), given)
        return getattr(clampgrad, name)(**given, gradient=gradient)

    return call


def for_each(name: str) -> Callable[..., Any]:
    """Of a list, one by one."""
    in_place, name = name.endswith("_"), name.rstrip("_")

    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *([kwargs["input"]] if "input" in kwargs else [])]
        given += [v for k, v in kwargs.items() if k != "input"]
        tensors, others = given if len(given) == 2 else ([], None)
        if not isinstance(others, (list, tuple)):
            others = [others] * len(tensors)
        if (
            not tensors
            or len(others) != len(tensors)
            or (gradient in PSEUDO and "clamp" not in name)
        ):
            return torchs_own(func, *args, **kwargs)  # or its error
        if "clamp" not in name:
            others = [o if isinstance(o, Tensor) else torch.full((), o) for o in others]
        one = PINNED[getattr(torch, name + "_" * (in_place and "clamp" in name))]
        if not in_place or "clamp" in name:
            results = [one(func, gradient, maximize, x, o) for x, o in zip(tensors, others)]
            return tensors if in_place else tuple(results)
        for x, o in zip(tensors, others):
            assign(x, (o,), one(func, gradient, maximize, to_be_written(x), o))
        return tensors

    return call


PINNED: dict[Any, Callable[..., Any]] = {}


def pin(call: Callable[..., Any], *names: str) -> None:
    for name in names:
        for namespace in (torch, Tensor, torch.ops.aten):
            if function := getattr(namespace, name, None):
                PINNED[function] = call
        if packet := getattr(torch.ops.aten, name, None):
            PINNED.update({getattr(packet, overload): call for overload in packet.overloads()})


for suffix in ("", "_"):
    pin(clamp("clamp" + suffix), "clamp" + suffix, "clip" + suffix)
    for one in ("clamp_min", "clamp_max"):
        pin(clamp(one + suffix), one + suffix)
    for one in ("clamp_min", "clamp_max", "maximum", "minimum"):
        pin(for_each(one + suffix), f"_foreach_{one}{suffix}")
for one, other in {"maximum": "max", "minimum": "min", "fmax": "fmax", "fmin": "fmin"}.items():
    pin(extremum(one), one, other)
