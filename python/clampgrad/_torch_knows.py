"""What parts of torch must know about pins, told to them at the first pin of a process.

- activation checkpointing: a segment remembers its pin, and runs under it again in backward;
- torch.compile: compiled code is guarded by the pin that it was compiled under, and the caches of
  compiled code on disk have it in their keys;
- the Python dispatcher, which compilers trace with, remembers kernels: it is made to look again.

They stay as they are when the last pin is gone: what remembers having had none must go on doing so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._after_import import when_imported

TORCHS_OWN = _implementation.pin_code(None, False)


def hold(code: int, put: Callable[[int], int] = _implementation.pin_thread) -> int:
    """Puts a pin on this thread, or on the process; returns what held before."""
    tell_torch()
    before = put(code)
    of_other_kernels()
    return before


class Remembered:
    """A function and the pin that it runs under; without a code, the one that holds now."""

    def __init__(self, function: Callable[..., Any], code: int | None = None) -> None:
        self.function = function
        self.code = _implementation.pin_current() if code is None else code

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        before = hold(self.code)
        try:
            return self.function(*args, **keywords)
        finally:
            hold(before)


# ---- Activation checkpointing --------------------------------------------------------------------------


class RecomputeFunction:
    """The attribute of that name. What was there before we looked was recorded without a pin."""

    def __set__(self, frame: Any, function: Callable[..., Any]) -> None:
        frame.__dict__["recompute_fn"] = Remembered(function)

    def __get__(self, frame: Any, owner: type) -> Any:
        return recorded_earlier(frame.__dict__["recompute_fn"])


def recorded_earlier(function: Callable[..., Any]) -> Remembered:
    return function if isinstance(function, Remembered) else Remembered(function, TORCHS_OWN)


def remember_in_checkpoints(checkpoint: Any) -> None:
    checkpoint._CheckpointFrame.recompute_fn = RecomputeFunction()

    reentrant = checkpoint.CheckpointFunction
    torchs_forward, torchs_backward = reentrant.forward, reentrant.backward

    @functools.wraps(torchs_forward)
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        return torchs_forward(ctx, Remembered(function), *args)

    @functools.wraps(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.run_function = recorded_earlier(ctx.run_function)
        return torchs_backward(ctx, *grads)

    reentrant.forward, reentrant.backward = staticmethod(forward), staticmethod(backward)


# ---- torch.compile ---------------------------------------------------------------------------------------


def guard_compiled_code(guards: Any) -> None:
    """Every compiled frame is guarded by the global state of torch; the pin is made part of that."""
    torchs = guards.GuardBuilder.GLOBAL_STATE

    @functools.wraps(torchs)
    def GLOBAL_STATE(self: Any, guard: Any) -> None:
        torchs(self, guard)
        code = _implementation.pin_current()
        self.guard_manager.root.add_lambda_guard(
            lambda _: _implementation.pin_current() == code,
            [f"clampgrad.pin.current() == {_implementation.pin_name(code)!r}"],
            guard.user_stack,
        )

    guards.GuardBuilder.GLOBAL_STATE = GLOBAL_STATE


def key_caches(codecache: Any) -> None:
    """AOTAutograd's cache on disk is keyed before autograd is traced: it does not see a pin."""
    torchs = codecache.FxGraphHashDetails.__init__

    @functools.wraps(torchs)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        torchs(self, *args, **keywords)
        if (name := _implementation.pin_name(_implementation.pin_current())) is not None:
            self.clampgrad_pin = name

    codecache.FxGraphHashDetails.__init__ = __init__


# ---- The Python dispatcher -------------------------------------------------------------------------------


@functools.cache
def overload(name: str) -> Any:
    operator, _, suffix = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), suffix or "default")


def of_other_kernels() -> None:
    for name in _implementation.pin_operators():
        overload(name)._dispatch_cache.clear()


# ---- All of it -------------------------------------------------------------------------------------------


@functools.cache
def tell_torch() -> None:
    when_imported("torch.utils.checkpoint", remember_in_checkpoints)
    when_imported("torch._inductor.codecache", key_caches)
    if when_imported("torch._dynamo.guards", guard_compiled_code):
        torch._dynamo.reset()  # what was compiled so far has no such guard
