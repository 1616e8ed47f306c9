"""Where a call runs: inside torch.func, in forward mode, in backward, under modes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
import torch.utils._python_dispatch as dispatch
from torch import Tensor


def in_levels() -> bool:
    """Whether a level of torch.func or of forward mode is open, at which a gradient may be recorded."""
    return torch._C._are_functorch_transforms_active() or fwad._current_level >= 0


def in_transform() -> bool:
    """Whether torch.func runs the call at one of its levels."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def is_of_transform(tensor: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_batched_gradient(tensor: Tensor) -> bool:
    """Whether `is_grads_batched` batched this gradient."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def carries_tangent(tensor: Tensor) -> bool:
    return fwad._current_level >= 0 and fwad.unpack_dual(tensor).tangent is not None


def forward_mode(enabled: bool) -> AbstractContextManager[Any]:
    """A block in which tangents are recorded, or not."""
    return fwad._set_fwd_grad_enabled(enabled)


def in_autodiff() -> bool:
    """Whether TorchScript runs a graph that it differentiates by itself: on detached tensors, in a frame that
    torch names so in torch/csrc/jit/runtime/graph_executor.cpp."""
    stack = torch._C._profiler.gather_traceback(python=False, script=True, cpp=False)
    return any(
        f["name"] == "<forward op>" for f in torch._C._profiler.symbolize_tracebacks([stack])[0]
    )


def guarded(bound: Any) -> Any:
    """A float that Dynamo makes a symbol because it changes, as its value, which a guard compares; anything
    else as it is. Where nothing asks, torch up to 2.14 may keep the value without a guard
    (github.com/pytorch/pytorch/issues/194976)."""
    changing = isinstance(bound, torch.SymFloat) and bound.node.has_hint() and "zf" in str(bound)
    return float(bound) if changing else bound


def dispatch_modes_are_on() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


def without_dispatch_modes() -> AbstractContextManager[Any]:
    """A block in which dispatch modes are off. Under some modes tensors have no values."""
    return dispatch._disable_current_modes()


@contextmanager
def without_modes() -> Iterator[None]:
    """A block in which neither function modes nor dispatch modes see a call."""
    with without_dispatch_modes(), torch._C.DisableTorchFunction():
        yield
