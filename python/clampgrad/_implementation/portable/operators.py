"""torch.ops.clampgrad, with the schemas of csrc/native_functions.yaml, in plain PyTorch.

An operator here does what its Python function does, and decomposes before
the levels of torch.func see it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from clampgrad._implementation.portable.front_doors import make_kernel

SCHEMAS: list[str] = json.loads(
    Path(__file__).parents[2].joinpath("_contract/schemas.json").read_text()
)


def kernel_of(name: str) -> Callable[..., Tensor]:
    """Returns the function that implements an operator. `name` has no overload; a `_mingrad`
    operator uses min_norm."""
    if name == "clamp_with_grad":
        return partial(make_kernel("clamp"), gradient="with_grad")
    return make_kernel(name.replace("_mingrad", ""))


library = torch.library.Library("clampgrad", "DEF")
for schema in SCHEMAS:
    library.define(schema)
    name = schema.partition("(")[0]
    for key in ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode"):
        library.impl(name, kernel_of(name.partition(".")[0]), key)
