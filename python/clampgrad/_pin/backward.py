"""Checkpoints, and operators that call functions (cond, while_loop, map, ...), call a function
again in backward and record its gradient there. They do so under the pin of the forward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from clampgrad._pin.body import PinnedFunction, bind_current_pin
from clampgrad._pin.state import current_pin_name
from clampgrad._torch.private_names import require_name, unsupported
from clampgrad._torch.replacements import (
    Replacement,
    expect,
    expect_attribute,
    expect_first,
    mark_replacement,
    original,
)

PIN_OF_FORWARD = "_clampgrad_pin_of_forward"  # an attribute of what forward keeps for backward


class RecomputeFunction:
    """Replaces the attribute `recompute_fn` of a checkpoint frame: stores the function with the
    current pin. A function from before the first pin runs without one."""

    def __set__(self, frame: Any, function: Callable[..., Any]) -> None:
        frame.__dict__["recompute_fn"] = bind_current_pin(function)

    def __get__(self, frame: Any, owner: type) -> Any:
        function = frame.__dict__["recompute_fn"]
        return function if isinstance(function, PinnedFunction) else PinnedFunction(function, None)


def replacements_in_checkpoint(checkpoint: ModuleType) -> list[Replacement]:
    frame = require_name("torch.utils.checkpoint:_CheckpointFrame")
    expect(frame.__init__, "self", "recompute_fn", "early_stop", "unpack_error_cb", "metadata_fn")
    reentrant = expect_attribute(checkpoint, "CheckpointFunction")
    return [
        Replacement(frame, "recompute_fn", RecomputeFunction()),
        *wrap_autograd_function(reentrant),
    ]


def replacements_in_operators(package: ModuleType) -> list[Replacement]:
    replacements = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{package.__name__}."):
            for thing in vars(module).values():
                is_function = isinstance(thing, type) and issubclass(thing, torch.autograd.Function)
                # Others are there because the module imports them.
                if is_function and thing.__module__ == name:
                    try:
                        replacements += wrap_autograd_function(thing)
                    except RuntimeError as error:
                        replacements += refuse_under_a_pin(thing, error)
    if not replacements:
        raise unsupported(f"{package!r} differentiates nothing")
    return replacements


def refuse_under_a_pin(function: Any, reason: Exception) -> list[Replacement]:
    """Makes an operator of a kind that we do not know raise an error under a pin. Without a pin it
    works as before."""

    def refusing(torchs: Callable[..., Any]) -> Any:
        @mark_replacement(torchs)
        def refused(*args: Any, **keywords: Any) -> Any:
            if current_pin_name() is not None:
                raise RuntimeError(f"{reason}; the pin {current_pin_name()!r} cannot hold in it")
            return torchs(*args, **keywords)

        return staticmethod(refused)

    names = "forward", "backward"
    return [Replacement(function, n, refusing(original(getattr(function, n)))) for n in names]


def wrap_autograd_function(function: Any) -> list[Replacement]:
    torchs_forward, torchs_backward = original(function.forward), original(function.backward)
    for torchs in torchs_forward, torchs_backward:
        expect_first(torchs, "ctx")

    @mark_replacement(torchs_forward)
    def forward(ctx: Any, *args: Any) -> Any:
        setattr(ctx, PIN_OF_FORWARD, current_pin_name())
        return torchs_forward(ctx, *args)

    @mark_replacement(torchs_backward)
    def backward(ctx: Any, *grads: Any) -> Any:
        # A forward from before the first pin has no such attribute.
        name = getattr(ctx, PIN_OF_FORWARD, None)
        return PinnedFunction(torchs_backward, name)(ctx, *grads)

    return [
        Replacement(function, "forward", staticmethod(forward)),
        Replacement(function, "backward", staticmethod(backward)),
    ]
