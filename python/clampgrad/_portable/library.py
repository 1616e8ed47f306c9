"""torch.ops.clampgrad, with the schemas of csrc/native_functions.yaml, in plain PyTorch.

An operator here is what its Python function is, at the levels of torch.func too: it decomposes before
any of them looks at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clampgrad._portable import functions

SCHEMAS: list[str] = json.loads(Path(__file__).parents[1].joinpath("_schemas.json").read_text())
KEYS = ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode")


def kernel(name: str) -> Callable[..., Tensor]:
    """Of an operator without its overload."""
    in_place, base = "_" * name.endswith("_"), name.rstrip("_").removesuffix("_mingrad")
    function = getattr(functions, base + in_place)

    def clamp(self: Tensor, min: Any = None, max: Any = None, **keywords: Any) -> Tensor:
        return function(self, min, max, **keywords)

    def clamp_max(self: Tensor, max: Any, **keywords: Any) -> Tensor:
        return function(self, None, max, **keywords)

    def extremum(self: Tensor, other: Tensor, maximize: bool = False, **keywords: Any) -> Tensor:
        functions.resolved(keywords.get("gradient", "min_norm"), maximize)
        return function(self, other, **keywords)

    if base.startswith("clamp"):
        return clamp_max if base == "clamp_max" else clamp
    return extremum


library = torch.library.Library("clampgrad", "DEF")
for schema in SCHEMAS:
    library.define(schema)
    name = schema.partition("(")[0]
    for key in KEYS:
        library.impl(name, kernel(name.partition(".")[0]), key)
