"""torch.ao.quantization.fuse_modules: a module of ours is fused with whatever torch's would be fused with."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from clampgrad._torch.after_import import when_imported

StandIn = Callable[[bool, Any], nn.Module]


def fuse_like(theirs: type[nn.Module], ours: type[nn.Module], stand_in: StandIn) -> None:
    """Fuses what `stand_in` makes of a module of ours, which then takes its place in the fused module."""
    action = partial(add_fusers, theirs, ours, stand_in)
    when_imported("torch.ao.quantization.fuser_method_mappings", action)


def add_fusers(theirs: type, ours: type, stand_in: StandIn, mappings: Any) -> None:
    fusers = mappings._DEFAULT_OP_LIST_TO_FUSER_METHOD
    for types, fuse in list(fusers.items()):
        if types[-1] is theirs:
            fusers[(*types[:-1], ours)] = partial(fuse_instead, fuse, stand_in)


def fuse_instead(
    fuse: Callable[..., nn.Module], stand_in: StandIn, is_qat: bool, *modules: nn.Module
) -> nn.Module:
    *others, ours = modules
    theirs = stand_in(is_qat, ours)
    fused = fuse(is_qat, *others, theirs)
    for name, child in fused.named_children():
        if child is theirs:
            setattr(fused, name, ours)
    return fused
