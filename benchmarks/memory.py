"""What autograd keeps between forward and backward."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch


class Saved:
    """What a graph keeps in place of a tensor. Without its history: that would be a cycle where a
    node keeps its own result, and nothing would free it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


def saved_bytes(function: Callable, *inputs: Any, **keywords: Any) -> int:
    """Bytes of the storages that the graph of the result keeps, each once."""
    kept: WeakSet[Saved] = WeakSet()

    def pack(tensor: torch.Tensor) -> Saved:
        saved = Saved(tensor)
        kept.add(saved)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        result = function(*inputs, **keywords)
    storages = (saved.tensor.untyped_storage() for saved in kept)
    total = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    del result  # it holds the graph
    return total
