"""Properties of tensors that only private names of torch give."""

from contextlib import suppress

import torch
from torch import Tensor


def made_again(x: Tensor) -> Tensor:
    """A view, made anew from its base; anything else as it is. Raises where torch lets nobody write it."""
    if type(x) is not Tensor or not x._is_view():
        return x
    with suppress(IndexError):
        # torch asks whether the view may be written before it sees that there is no such dimension. Of a view
        # that is made anew it would not ask.
        x.cumsum_(x.dim() + 1)
    return x._view_func(x._base)


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same, or one is a view of the other."""
    return torch._C._is_alias_of(a, b)


def version(x: Tensor) -> int:
    """How often the tensor was changed in place."""
    return x._version
