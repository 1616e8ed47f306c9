"""Checkpoints, and operators that call functions (cond, while_loop, map, ...), call a function
again in backward and record its gradient there. They do so under the pin of the forward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from clampgrad._pin.body import Remembered, remember
from clampgrad._pin.state import current
from clampgrad._torch.changes import (
    Change,
    expect,
    expect_attribute,
    expect_first,
    original,
    replacing,
)
from clampgrad._torch.private_names import expected, unsupported

PIN_OF_FORWARD = "_clampgrad_pin_of_forward"  # an attribute of what forward keeps for backward


class RecomputeFunction:
    """The attribute of that name of a frame. What was set before the
    first pin is called without one."""

    def __set__(self, frame: Any, function: Callable[..., Any]) -> None:
        frame.__dict__["recompute_fn"] = remember(function)

    def __get__(self, frame: Any, owner: type) -> Any:
        function = frame.__dict__["recompute_fn"]
        return function if isinstance(function, Remembered) else Remembered(function, None)


def remember_in_checkpoints(checkpoint: ModuleType) -> list[Change]:
    frame = expected("torch.utils.checkpoint:_CheckpointFrame")
    expect(frame.__init__, "self", "recompute_fn", "early_stop", "unpack_error_cb", "metadata_fn")
    reentrant = expect_attribute(checkpoint, "CheckpointFunction")
    return [Change(frame, "recompute_fn", RecomputeFunction()), *remember_in(reentrant)]


def remember_in_operators(package: ModuleType) -> list[Change]:
    changes = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{package.__name__}."):
            for thing in vars(module).values():
                is_function = isinstance(thing, type) and issubclass(thing, torch.autograd.Function)
                # Others are there because the module imports them.
                if is_function and thing.__module__ == name:
                    try:
                        changes += remember_in(thing)
                    except RuntimeError as error:
                        changes += refuse_under_a_pin(thing, error)
    if not changes:
        raise unsupported(f"{package!r} differentiates nothing")
    return changes


def refuse_under_a_pin(function: Any, why: Exception) -> list[Change]:
    """Without a pin, an operator of a kind that we do not know works as before."""

    def refusing(torchs: Callable[..., Any]) -> Any:
        @replacing(torchs)
        def refused(*args: Any, **keywords: Any) -> Any:
            if current() is not None:
                raise RuntimeError(f"{why}; the pin {current()!r} cannot hold in it")
            return torchs(*args, **keywords)

        return staticmethod(refused)

    names = "forward", "backward"
    return [Change(function, n, refusing(original(getattr(function, n)))) for n in names]


def remember_in(function: Any) -> list[Change]:
    torchs_forward, torchs_backward = original(function.forward), original(function.backward)
    for torchs in torchs_forward, torchs_backward:
        expect_first(torchs, "ctx")

    @replacing(torchs_forward)
    def forward(ctx: Any, *args: Any) -> Any:
        setattr(ctx, PIN_OF_FORWARD, current())
        return torchs_forward(ctx, *args)

    @replacing(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        # A forward from before the first pin has no such attribute.
        name = getattr(ctx, PIN_OF_FORWARD, None)
        return Remembered(torchs_backward, name)(ctx, *grads)

    return [
        Change(function, "forward", staticmethod(forward)),
        Change(function, "backward", staticmethod(backward)),
    ]
