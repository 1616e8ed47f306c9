"""What parts of torch must know about pins, told to them at the first pin of a process.

- activation checkpointing: a segment remembers its pin, and runs under it again in backward;
- operators that call functions (cond, while_loop, map...): the same, for they differentiate in backward;
- torch.compile: compiled code is guarded by the pin that it was compiled under, wherever it is
  loaded, and the caches of compiled code on disk have the pin in their keys;
- the Python dispatcher, which compilers trace with, remembers kernels: it is made to look again.

They stay as they are when the last pin is gone: what remembers having had none must go on doing so.
All of this is internal to torch. What it is expected to look like is checked before the first change,
so that a release in which it is different says so at the first pin, and is not changed at all.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._pin.cache_key import key_caches
from clampgrad._pin.forks import held_over_forks
from clampgrad._pin.state import TORCHS_OWN, Remembered
from clampgrad._torch.after_import import (
    Refused,
    imported,
    no_longer_on_import,
    on_import,
    when_imported,
)
from clampgrad._torch.changes import (
    Change,
    expect,
    expect_attribute,
    expect_first,
    made,
    original,
    replacing,
)
from clampgrad._torch.private_names import expected


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


def remember_in_checkpoints(checkpoint: Any) -> list[Change]:
    frame = expected("torch.utils.checkpoint:_CheckpointFrame")
    expect(frame.__init__, "self", "recompute_fn", "early_stop", "unpack_error_cb", "metadata_fn")
    reentrant = expect_attribute(checkpoint, "CheckpointFunction")
    torchs_forward = original(expect_attribute(reentrant, "forward"))
    torchs_backward = original(expect_attribute(reentrant, "backward"))
    expect(torchs_forward, "ctx", "run_function", "preserve_rng_state", "args")
    expect(torchs_backward, "ctx", "args")

    @replacing(torchs_forward)
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        return torchs_forward(ctx, remember(function), *args)

    @replacing(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.run_function = recorded_earlier(ctx.run_function)
        return torchs_backward(ctx, *grads)

    return [
        Change(frame, "recompute_fn", RecomputeFunction()),
        Change(reentrant, "forward", staticmethod(forward)),
        Change(reentrant, "backward", staticmethod(backward)),
    ]


# ---- Operators that call functions ---------------------------------------------------------------------

PIN_OF_FORWARD = "_clampgrad_pin_of_forward"  # an attribute of what forward keeps for backward


def remember_in_backward(package: ModuleType) -> list[Change]:
    """Most of these operators call the function once more in backward, and record its gradient there."""
    changes = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{package.__name__}."):
            for thing in vars(module).values():
                # Others are there because the module imports them.
                if is_autograd_function(thing) and thing.__module__ == name:
                    changes += remember_in(thing)
    if not changes:
        raise RuntimeError(
            f"clampgrad does not support torch {torch.__version__}: {package!r} differentiates nothing"
        )
    return changes


def refuse_in_joints(aot_autograd: Any) -> list[Change]:
    """Others differentiate it in forward, where torch has taken the portable pin off for the operator."""
    torchs = original(expected("torch._functorch.aot_autograd:create_joint"))
    expect_first(torchs, "fn")

    @replacing(torchs)
    def create_joint(*args: Any, **keywords: Any) -> Any:
        joint = torchs(*args, **keywords)
        return functools.wraps(joint)(functools.partial(reached, joint))

    return [Change(aot_autograd, "create_joint", create_joint)]


def reached(joint: Callable[..., Any], *args: Any) -> Any:
    name = current()
    if name and _implementation.name == "portable" and "partial" not in name:
        from clampgrad._implementation.portable.pin import is_on

        if not is_on():
            raise RuntimeError(
                "clampgrad.pin: the portable implementation does not reach what scan, flex_attention and "
                "their like call. Take the pin off around this call (`with clampgrad.pin(None)`), accept "
                "torch's own gradient there (partial=True), or use the compiled implementation"
            )
    return joint(*args)


def is_autograd_function(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, torch.autograd.Function)


def remember_in(function: Any) -> list[Change]:
    torchs_forward, torchs_backward = original(function.forward), original(function.backward)
    for torchs in torchs_forward, torchs_backward:
        expect_first(torchs, "ctx")

    @replacing(torchs_forward)
    def forward(ctx: Any, *args: Any) -> Any:
        setattr(ctx, PIN_OF_FORWARD, _implementation.pin_current())
        return torchs_forward(ctx, *args)

    @replacing(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        # What was there before we looked was recorded without a pin.
        code = getattr(ctx, PIN_OF_FORWARD, TORCHS_OWN)
        return Remembered(torchs_backward, code)(ctx, *grads)

    return [
        Change(function, "forward", staticmethod(forward)),
        Change(function, "backward", staticmethod(backward)),
    ]


# ---- torch.compile ---------------------------------------------------------------------------------------
#
# Every compiled frame is guarded by the global state of torch; the pin is made part of that. Guards
# are saved with code that was compiled ahead of time, as the function that builds them and its
# arguments: that is guard_global_state with the pin of the compilation. Code that was compiled where
# nothing was ever pinned has torch's own function, and is of no pin.

PINNED = "_clampgrad_pin"  # an attribute of the guards that know of a pin


def guard_global_state(builder: Any, guard: Any, *, pin: str | None) -> None:
    name = ambient_guard(type(builder))
    original(getattr(type(builder), name))(builder, guard)
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


def guard_compiled_code(_: object) -> list[Change]:
    builder = expected("torch._dynamo.guards:GuardBuilder")
    name = ambient_guard(builder)
    torchs = original(expect_attribute(builder, name))
    expect(torchs, "self", "guard")

    @replacing(torchs)
    def wrapped(self: Any, guard: Any) -> None:
        was_saved = getattr(self.check_fn_manager.output_graph, "skip_guards_check", False)
        if not was_saved:
            guard.create_fn = functools.partial(guard_global_state, pin=current())
        guard_global_state(self, guard, pin=None if was_saved else current())

    return [Change(builder, name, wrapped)]


def refuse_code_without_guard(aot_compile: Any) -> list[Change]:
    """Compiled ahead of time, or loaded, before the first pin of this process: it is of no pin."""
    torchs = original(expected("torch._dynamo.aot_compile:AOTCompiledFunction.guard_check"))

    @replacing(torchs)
    def guard_check(self: Any, *args: Any, **keywords: Any) -> bool:
        if current() is not None and not hasattr(self._artifacts.guard_manager, PINNED):
            raise RuntimeError(
                "clampgrad.pin: this function was compiled ahead of time, or loaded, before the "
                "first pin of the process; compile or load it after that"
            )
        return torchs(self, *args, **keywords)

    return [Change(aot_compile.AOTCompiledFunction, "guard_check", guard_check)]


def reset_precompiled() -> Callable[[CodeType], object] | None:
    """torch's function that drops the code that caching_precompile loaded, if this release has that."""
    if not hasattr(torch._dynamo.config, "caching_precompile"):
        return None
    return expected("torch._C._dynamo.eval_frame:_reset_precompile_entries")


def drop_compiled() -> None:
    """What was compiled so far has no guard. What caching_precompile loaded, torch.compiler.reset leaves.

    It hangs on the code of each function that it was compiled for, also when the compiled function it
    was loaded with is gone, so every function is asked.
    """
    torch.compiler.reset()
    if not (reset := reset_precompiled()):
        return
    codes = [thing.__code__ for thing in gc.get_objects() if type(thing) is FunctionType]
    while codes:
        code = codes.pop()
        reset(code)
        codes += [inner for inner in code.co_consts if type(inner) is CodeType]


def compiler_lock() -> Any:
    """torch's, which resetting the compiler takes; one of nobody, where that is not imported."""
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(convert_frame, "compile_lock", None) or threading.RLock()


# ---- The Python dispatcher -------------------------------------------------------------------------------


def overload(name: str) -> Any:
    operator, _, suffix = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), suffix or "default")


def forget_kernels(names: list[str]) -> None:
    for name in names:
        expect_attribute(overload(name), "_dispatch_cache").clear()


# ---- All of it -------------------------------------------------------------------------------------------

# How a module of torch is to change. Each checks what it is about to change, and changes nothing.
CHANGES: dict[str, Callable[[Any], list[Change]]] = {
    "torch.utils.checkpoint": remember_in_checkpoints,
    "torch._higher_order_ops": remember_in_backward,
    "torch._functorch.aot_autograd": refuse_in_joints,
    "torch._inductor.codecache": key_caches,
    "torch._dynamo.aot_compile": refuse_code_without_guard,
    "torch._dynamo.guards": guard_compiled_code,
}

_done = False
# Held while torch is changed, and never while something is imported.
_changing = held_over_forks(threading.RLock())
# Held while torch is told, and taken before _changing, at a fork too.
_first = held_over_forks(threading.RLock())


def at_import(module: ModuleType) -> None:
    """Changes a module that is imported after the first pin.

    Under a pin, which could not hold in it, a failure ends the import. Without one it is a warning, and
    the next pin fails instead.
    """
    global _done
    try:
        with _changing, made(CHANGES[module.__name__](module)):
            pass
    except Exception as error:
        _done = False
        if current() is not None:
            raise Refused(f"{error}; the pin {current()!r} cannot hold there") from error
        raise


def tell_torch() -> None:
    """Called before every pin, until it has succeeded once. If it fails, torch is as it was."""
    if not _done:
        first_pin()


def first_pin() -> None:
    """One thread tells torch; others wait for it.

    A thread that compiles may come here too, so nobody waits for the compiler who holds _first. Nor does
    anybody hold the compiler without _first: a fork takes that, and no child finds the other locked by a
    thread that it does not have.
    """
    while not _done:
        with _first:
            compiler = compiler_lock()
            if compiler.acquire(blocking=False):
                try:
                    tell_once()
                finally:
                    compiler.release()
                return
        time.sleep(0.001)


def tell_once() -> None:
    global _done
    if _done:
        return
    added = [name for name in CHANGES if on_import(name, at_import)]
    try:
        tell()
    except BaseException:
        for name in added:
            no_longer_on_import(name, at_import)
        raise
    _done = True


def leave_uncompiled(_: object) -> None:
    """A first pin inside a compiled function breaks its graph, and nothing that it does is compiled."""
    global first_pin
    first_pin = torch.compiler.disable(first_pin)


def tell() -> None:
    compiler = imported("torch._dynamo")
    modules = {name: module for name in CHANGES if (module := imported(name))}
    with ExitStack() as undone_if_the_rest_fails:
        with _changing:
            expect_attribute(torch.ops.aten.clamp.default, "_dispatch_cache")
            if compiler:
                reset_precompiled()
            changes = [change for name in modules for change in CHANGES[name](modules[name])]
            undone_if_the_rest_fails.enter_context(made(changes))
        if compiler:
            drop_compiled()
        forget_kernels(_implementation.pin_register())  # last: kernels stay registered


# A graph may have our operators where nothing was ever pinned.
when_imported("torch._inductor.codecache", at_import)
when_imported("torch._dynamo", leave_uncompiled)
