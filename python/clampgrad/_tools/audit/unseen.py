"""Blocks in which the audit computes: no mode, hook or default of the program sees or changes that."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.autograd.graph import saved_tensors_hooks

from clampgrad._torch.surroundings import dispatch_modes_are_on, without_dispatch_modes


@contextmanager
def unseen() -> Iterator[None]:
    """Takes off function modes (torch.set_default_device is one) and dispatch modes, for a block."""
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        if dispatch_modes_are_on():
            stack.enter_context(without_dispatch_modes())
        yield


@contextmanager
def differentiating() -> Iterator[None]:
    """As `unseen`, with gradients on. They may be NaN, so anomaly mode is off."""
    # A checkpoint counts what is saved, and keeps it.
    ours = saved_tensors_hooks(lambda t: t, lambda t: t)
    with (
        unseen(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        ours,
    ):
        yield
