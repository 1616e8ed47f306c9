"""Where a call runs: inside torch.func, in forward mode, in backward, under modes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
import torch.utils._python_dispatch as dispatch
from torch import Tensor

from clampgrad._torch.changes import original, replacing


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


def replace_backward(runs: Callable[..., Any]) -> None:
    """Makes autograd call `runs`, with its engine and the arguments, in place of the engine."""
    run = original(torch.autograd._engine_run_backward)

    @replacing(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        return runs(run, *args, **kwargs)

    torch.autograd._engine_run_backward = run_backward
