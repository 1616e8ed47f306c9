"""Activation checkpointing: a segment remembers its pin, and runs under it again in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clampgrad._pin.functions import recorded_earlier, remember
from clampgrad._torch.changes import Change, expect, expect_attribute, original, replacing
from clampgrad._torch.private_names import expected


class RecomputeFunction:
    """The attribute of that name of a frame."""

    def __set__(self, frame: Any, function: Callable[..., Any]) -> None:
        frame.__dict__["recompute_fn"] = remember(function)

    def __get__(self, frame: Any, owner: type) -> Any:
        return recorded_earlier(frame.__dict__["recompute_fn"])


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
