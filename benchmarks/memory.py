"""What autograd keeps between forward and backward."""

from collections.abc import Callable

import torch


def saved_bytes(function: Callable, *inputs: torch.Tensor) -> int:
    """Bytes of the storages that the graph keeps, each once."""
    storages = {}

    def pack(t):
        storage = t.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(*inputs)
    return sum(storages.values())
