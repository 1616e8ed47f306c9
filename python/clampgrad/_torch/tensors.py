"""Properties of tensors that only private names of torch give."""

import torch
from torch import Tensor


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same, or one is a view of the other."""
    return torch._C._is_alias_of(a, b)


def version(x: Tensor) -> int:
    """How often the tensor was changed in place."""
    return x._version
