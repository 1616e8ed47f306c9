"""Operators that call functions (cond, while_loop, map, ...): they remember their pin.

Most call the function once more in backward, and record its gradient there. Others differentiate it in
forward, where torch has taken the portable pin off for the operator.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._pin.functions import Remembered
from clampgrad._pin.state import TORCHS_OWN, current
from clampgrad._torch.changes import Change, expect_first, original, replacing
from clampgrad._torch.private_names import expected, unsupported

PIN_OF_FORWARD = "_clampgrad_pin_of_forward"  # an attribute of what forward keeps for backward


def remember_in_backward(package: ModuleType) -> list[Change]:
    changes = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{package.__name__}."):
            for thing in vars(module).values():
                # Others are there because the module imports them.
                if is_autograd_function(thing) and thing.__module__ == name:
                    changes += remember_in(thing)
    if not changes:
        raise unsupported(f"{package!r} differentiates nothing")
    return changes


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
        # A forward from before the first pin has no such attribute.
        code = getattr(ctx, PIN_OF_FORWARD, TORCHS_OWN)
        return Remembered(torchs_backward, code)(ctx, *grads)

    return [
        Change(function, "forward", staticmethod(forward)),
        Change(function, "backward", staticmethod(backward)),
    ]


def refuse_in_joints(aot_autograd: Any) -> list[Change]:
    torchs = original(expected("torch._functorch.aot_autograd:create_joint"))
    expect_first(torchs, "fn")

    @replacing(torchs)
    def create_joint(*args: Any, **keywords: Any) -> Any:
        joint = torchs(*args, **keywords)
        return functools.wraps(joint)(functools.partial(reached, joint))

    return [Change(aot_autograd, "create_joint", create_joint)]


def reached(joint: Callable[..., Any], *args: Any) -> Any:
    name = current()
    if name and "partial" not in name and not _implementation.pin_is_on():
        raise RuntimeError(
            "clampgrad.pin: the portable implementation does not reach what scan, flex_attention and "
            "their like call. Take the pin off around this call (`with clampgrad.pin(None)`), accept "
            "torch's own gradient there (partial=True), or use the compiled implementation"
        )
    return joint(*args)
