"""Whether tensors carry tangents. C++ alone knows: where compiled or exported code opens a level of
forward mode, torch.autograd.forward_ad does not hear of it."""

import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor

from clampgrad._torch.dispatcher import OneLevel
from clampgrad._torch.surroundings import forward_mode, in_levels

modules = sys.modules


def may_exist() -> bool:
    """Whether a level of forward mode may be open. Asking a tensor takes as long as a clamp of it;
    without the compiler, whose code runs elsewhere too, Python knows of every level."""
    return fwad._current_level >= 0 or in_levels() or "torch._dynamo" in modules


class TangentProbe(OneLevel):
    """apply(tangents, *tensors): torch calls jvp only if an argument carries a tangent. No operator
    is called, so no mode, subclass or graph sees the probe."""

    @staticmethod
    def forward(ctx: Any, tangents: list[bool], *_: Tensor) -> None:
        ctx.tangents = tangents
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        ctx.tangents.append(True)


def carried(tensors: Iterable[Tensor]) -> bool:
    """Whether one of them carries a tangent at the level that runs now."""
    if not may_exist():
        return False
    tangents: list[bool] = []
    TangentProbe.call(tangents, *tensors)
    return bool(tangents)


def carried_at_a_level(tensors: list[Tensor]) -> bool:
    """Whether one of them carries a tangent at any level, also wrapped by torch.func."""
    if not may_exist():
        return False
    if not in_levels():
        return carried(tensors)
    with forward_mode(True):  # each level has this switch to itself
        while tensors:
            if carried(tensors):
                return True
            wrapped = filter(torch._C._functorch.is_functorch_wrapped_tensor, tensors)
            tensors = [*map(torch._C._functorch.get_unwrapped, wrapped)]
    return False
