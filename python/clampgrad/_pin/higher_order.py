"""Operators that call functions (cond, while_loop, map, ...) remember their pin.

They call the function once more in backward, and record its gradient there.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

from clampgrad._pin.functions import Remembered
from clampgrad._pin.state import current
from clampgrad._torch.changes import Change, expect_first, original, replacing
from clampgrad._torch.private_names import unsupported

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
