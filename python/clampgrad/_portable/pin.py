"""The pin, for calls that go through Python.

A mode of torch sees every call of torch's functions and methods that the thread makes. It does not
see what torch calls by itself: in C++, inside functions of torch.nn.functional and torch's other
functions in Python, in TorchScript and in graphs that were captured earlier. There torch's own
gradient stays; the compiled implementation pins those as well.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode

import clampgrad
from clampgrad._portable.functions import resolved
from clampgrad._table import CONVENTIONS, PSEUDO

# A code: what the function of pin_ask says, nothing, torch's own gradient, or FIRST + twice the
# convention + maximize.
ASK, UNSET, TORCHS_OWN, FIRST = -1, 0, 1, 2


class Here(threading.local):
    """The pin of this thread, the one of the process as far as this thread knows, and the mode."""

    code = of_process = UNSET
    mode: TorchFunctionMode | None = None


here = Here()
asked: Callable[[], int]


def pin_code(gradient: str | None, maximize: bool, /) -> int:
    if gradient is not None:
        return FIRST + 2 * CONVENTIONS.index(resolved(gradient, maximize)) + maximize
    if maximize:
        raise ValueError("maximize=True does not apply to torch's own gradient")
    return TORCHS_OWN


def pin_name(code: int, /) -> str | None:
    if code < FIRST:
        return None
    return CONVENTIONS[(code - FIRST) // 2] + ", maximize" * (code % 2)


def pin_current() -> int:
    code = asked() if here.code == ASK else here.code
    return code or here.of_process or TORCHS_OWN


def pin_thread(code: int, /) -> int:
    before, here.code = here.code, code
    watch()
    return before


def pin_process(code: int, /) -> int:
    if code >= FIRST and threading.active_count() > 1:
        warnings.warn(
            "the portable implementation of clampgrad pins the thread that asks for it: other threads "
            "of this process keep torch's own gradient",
            stacklevel=4,
        )
    before, here.of_process = here.of_process, code
    watch()
    return before


def pin_ask(function: Callable[[], int], /) -> None:
    global asked
    asked = function


def pin_register() -> list[str]:
    return []  # no kernel is another


def watch() -> None:
    """Has the mode on while there is something to pin, unless others were entered after it."""
    if here.code == ASK or pin_current() >= FIRST:
        if here.mode is None:
            here.mode = Mode()
            here.mode.__enter__()
    elif here.mode is not None and _get_current_function_mode() is here.mode:
        here.mode.__exit__(None, None, None)
        here.mode = None


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, pinned = pin_name(pin_current()), PINNED.get(func)
        if name is None or pinned is None:
            return func(*args, **kwargs or {})
        gradient, _, maximize = name.partition(", ")
        return pinned(func, gradient, bool(maximize), *args, **kwargs or {})


# ---- What is called in place of torch's own ------------------------------------------------------------


def clamp(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        bounds = [b for b in (*args[1:], kwargs.get("min"), kwargs.get("max")) if b is not None]
        if len({isinstance(b, Tensor) for b in bounds}) == 2:
            # Beside a number torch takes a Tensor without a dimension for one, and no other.
            if any(isinstance(b, Tensor) and (b.dim() or b.requires_grad) for b in bounds):
                return func(*args, **kwargs)  # which raises
            args = args[:1] + tuple(map(number, args[1:]))
            kwargs = {k: b if k == "out" else number(b) for k, b in kwargs.items()}
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
            return func(*args, **kwargs)
        return getattr(clampgrad, name)(**given, gradient=gradient)

    return call


def for_each(name: str) -> Callable[..., Any]:
    """Of a list, one by one; a maximum with a number is a clamp."""
    in_place, name = name.endswith("_"), name.rstrip("_")
    with_number = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name, name)

    def call(func: Any, gradient: str, maximize: bool, self: Any, other: Any) -> Any:
        others = other if isinstance(other, (list, tuple)) else [other] * len(self)
        kinds = {name if isinstance(o, Tensor) else with_number for o in others}
        if (
            len(others) != len(self)
            or len(kinds) != 1
            or (gradient in PSEUDO and not kinds <= {"clamp_min", "clamp_max"})
        ):
            return func(self, other)  # torch's own, or its error
        one = PINNED[getattr(torch, kinds.pop())]
        results = [one(func, gradient, maximize, x, o) for x, o in zip(self, others)]
        if not in_place:
            return tuple(results)
        for x, result in zip(self, results):
            x.copy_(result)
        return self

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
        PINNED[getattr(torch, f"_foreach_{one}{suffix}")] = for_each(one + suffix)
for one, other in {"maximum": "max", "minimum": "min", "fmax": "fmax", "fmin": "fmin"}.items():
    pin(extremum(one), one, other)
