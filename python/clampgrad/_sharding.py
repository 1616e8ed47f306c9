"""How DTensor shards the fused backward, the one operator of ours that it sees: it is elementwise."""

from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding


@register_sharding(torch.ops.clampgrad.clamp_mingrad_backward.default)
def _elementwise(grad: Any, input: Any, *bounds: Any) -> list[tuple[list[Any], list[Any]]]:
    """What comes out, and what of the gradient and the input goes in."""
    numbers = [None] * len(bounds)
    alike = [Replicate(), *map(Shard, range(input.ndim))]
    ways = [([p], [p, p, *numbers]) for p in alike]
    # Linear in the gradient: a sum may be taken afterwards.
    return [*ways, ([Partial()], [Partial(), Replicate(), *numbers])]
