"""Properties of tensors that only private names of torch give."""

from contextlib import suppress

import torch
from torch import Tensor

from clampgrad._torch.surroundings import without_dispatch_modes


def made_again(x: Tensor) -> Tensor:
    """A view, made anew from its base; anything else as it is. Raises where torch lets nobody write it."""
    if type(x) is not Tensor or not x._is_view():
        return x
    with suppress(IndexError):
        # torch asks whether the view may be written before it sees that there is no such dimension. Of a view
        # that is made anew it would not ask.
        x.cumsum_(x.dim() + 1)
    return x._view_func(x._base)


def check_in_place(x: Tensor) -> None:
    """Raises where torch lets no operator in place that records a gradient write it. It asks an autograd function
    after that has written."""
    if type(x) not in (Tensor, torch.nn.Parameter) or not (x._is_view() or x.is_leaf):
        return
    records = torch.is_grad_enabled()
    # There is no such dimension, which torch says after it has asked.
    with suppress(IndexError), without_dispatch_modes():
        index = torch.empty(0, dtype=torch.long, device=x.device)
        source = torch.empty(0, dtype=x.dtype, device=x.device, requires_grad=records)
        x.index_add_(x.dim() + 1, index, source)


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same, or one is a view of the other."""
    return torch._C._is_alias_of(a, b)


def version(x: Tensor) -> int:
    """How often the tensor was changed in place."""
    return x._version
