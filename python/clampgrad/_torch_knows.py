"""What parts of torch must know about pins, told to them at the first pin of a process.

- activation checkpointing: a segment remembers its pin, and runs under it again in backward;
- torch.compile: compiled code is guarded by the pin that it was compiled under, wherever it is
  loaded, and the caches of compiled code on disk have the pin in their keys;
- the Python dispatcher, which compilers trace with, remembers kernels: it is made to look again.

They stay as they are when the last pin is gone: what remembers having had none must go on doing so.
All of this is internal to torch. What it is expected to look like is checked before it is changed, so
that a release in which it is different says so at the first pin.
"""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._after_import import when_imported
from clampgrad._pin_state import TORCHS_OWN, Remembered


def expect(function: Callable[..., Any], *parameters: str) -> None:
    """Raises RuntimeError if the parameters of a function of torch are not those."""
    found = tuple(inspect.signature(function).parameters)
    if found != parameters:
        raise RuntimeError(
            f"clampgrad.pin does not support torch {torch.__version__}: {function.__module__}."
            f"{function.__qualname__} takes {found}, not {parameters}"
        )


def expect_attribute(thing: Any, name: str) -> Any:
    """The attribute, or a RuntimeError that says what is missing."""
    if not hasattr(thing, name):
        raise RuntimeError(
            f"clampgrad.pin does not support torch {torch.__version__}: {thing!r} has no {name}"
        )
    return getattr(thing, name)


def current() -> str | None:
    return _implementation.pin_name(_implementation.pin_current())


# ---- Activation checkpointing --------------------------------------------------------------------------


class RecomputeFunction:
    """The attribute of that name. What was there before we looked was recorded without a pin."""

    def __set__(self, frame: Any, function: Callable[..., Any]) -> None:
        frame.__dict__["recompute_fn"] = remember(function)

    def __get__(self, frame: Any, owner: type) -> Any:
        return recorded_earlier(frame.__dict__["recompute_fn"])


def remember(function: Callable[..., Any]) -> Remembered:
    return function if isinstance(function, Remembered) else Remembered(function)


def recorded_earlier(function: Callable[..., Any]) -> Remembered:
    return function if isinstance(function, Remembered) else Remembered(function, TORCHS_OWN)


def remember_in_checkpoints(checkpoint: Any) -> None:
    frame = expect_attribute(checkpoint, "_CheckpointFrame")
    expect(frame.__init__, "self", "recompute_fn", "early_stop", "unpack_error_cb", "metadata_fn")
    reentrant = expect_attribute(checkpoint, "CheckpointFunction")
    torchs_forward, torchs_backward = reentrant.forward, reentrant.backward
    expect(torchs_forward, "ctx", "run_function", "preserve_rng_state", "args")
    expect(torchs_backward, "ctx", "args")

    @functools.wraps(torchs_forward)
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        return torchs_forward(ctx, remember(function), *args)

    @functools.wraps(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.run_function = recorded_earlier(ctx.run_function)
        return torchs_backward(ctx, *grads)

    frame.recompute_fn = RecomputeFunction()
    reentrant.forward, reentrant.backward = staticmethod(forward), staticmethod(backward)


# ---- torch.compile ---------------------------------------------------------------------------------------
#
# Every compiled frame is guarded by the global state of torch; the pin is made part of that. Guards
# are saved with code that was compiled ahead of time, as the function that builds them and its
# arguments: that is guard_global_state with the pin of the compilation. Code that was compiled where
# nothing was ever pinned has torch's own function, and is of no pin.

PINNED = "_clampgrad_pin"  # an attribute of the guards that know of a pin


def guard_global_state(builder: Any, guard: Any, *, pin: str | None) -> None:
    name = ambient_guard(type(builder))
    torchs = getattr(type(builder), name)
    getattr(torchs, "__wrapped__", torchs)(builder, guard)
    manager = builder.guard_manager
    expect_attribute(manager, "root").add_lambda_guard(
        lambda _: current() == pin,
        [f"clampgrad.pin.current() == {pin!r}"],
        *([guard.user_stack] if name == "GLOBAL_STATE" else []),
    )
    setattr(manager, PINNED, True)


guard_global_state.__name__ = "GLOBAL_STATE"  # by which torch knows the guard's type


def ambient_guard(builder: Any) -> str:
    """A guard that every compiled frame has: before 2.10 the global state has none of its own."""
    return "GLOBAL_STATE" if hasattr(builder, "GLOBAL_STATE") else "GRAD_MODE"


def guard_compiled_code(guards: Any) -> None:
    builder = expect_attribute(guards, "GuardBuilder")
    name = ambient_guard(builder)
    torchs = expect_attribute(builder, name)
    expect(torchs, "self", "guard")

    @functools.wraps(torchs)
    def wrapped(self: Any, guard: Any) -> None:
        was_saved = getattr(self.check_fn_manager.output_graph, "skip_guards_check", False)
        if not was_saved:
            guard.create_fn = functools.partial(guard_global_state, pin=current())
        guard_global_state(self, guard, pin=None if was_saved else current())

    setattr(builder, name, wrapped)


def refuse_code_without_guard(aot_compile: Any) -> None:
    """Compiled ahead of time, or loaded, before the first pin of this process: it is of no pin."""
    compiled = expect_attribute(aot_compile, "AOTCompiledFunction")
    torchs = expect_attribute(compiled, "guard_check")

    @functools.wraps(torchs)
    def guard_check(self: Any, *args: Any, **keywords: Any) -> bool:
        if current() is not None and not hasattr(self._artifacts.guard_manager, PINNED):
            raise RuntimeError(
                "clampgrad.pin: this function was compiled ahead of time, or loaded, before the "
                "first pin of the process; compile or load it after that"
            )
        return torchs(self, *args, **keywords)

    compiled.guard_check = guard_check


def drop_precompiled() -> None:
    """Code that caching_precompile loaded before the first pin, which torch._dynamo.reset leaves.

    It hangs on the code of each function that it was compiled for, also when the compiled function it
    was loaded with is gone, so every function is asked.
    """
    if not hasattr(torch._dynamo.config, "caching_precompile"):
        return  # older than that
    reset = expect_attribute(torch._C._dynamo.eval_frame, "_reset_precompile_entries")
    codes = [thing.__code__ for thing in gc.get_objects() if type(thing) is FunctionType]
    while codes:
        code = codes.pop()
        reset(code)
        codes += [inner for inner in code.co_consts if type(inner) is CodeType]


def key_caches(codecache: Any) -> None:
    """AOTAutograd's cache on disk is keyed before autograd is traced: it does not see a pin."""
    details = expect_attribute(codecache, "FxGraphHashDetails")
    torchs = details.__init__

    @functools.wraps(torchs)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        torchs(self, *args, **keywords)
        if current() is not None:
            self.clampgrad_pin = current()

    details.__init__ = __init__


# ---- The Python dispatcher -------------------------------------------------------------------------------


def overload(name: str) -> Any:
    operator, _, suffix = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), suffix or "default")


def forget_kernels(names: list[str]) -> None:
    for name in names:
        expect_attribute(overload(name), "_dispatch_cache").clear()


# ---- All of it -------------------------------------------------------------------------------------------


@functools.cache
def tell_torch() -> None:
    """Once, before the first pin."""
    when_imported("torch.utils.checkpoint", remember_in_checkpoints)
    when_imported("torch._inductor.codecache", key_caches)
    when_imported("torch._dynamo.aot_compile", refuse_code_without_guard)
    forget_kernels(_implementation.pin_register())
    if when_imported("torch._dynamo.guards", guard_compiled_code):
        torch._dynamo.reset()  # what was compiled so far has no such guard
        drop_precompiled()
