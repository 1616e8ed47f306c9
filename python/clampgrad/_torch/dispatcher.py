"""The Python dispatcher, which compilers trace with, keeps the kernel of each operator."""

from __future__ import annotations

from typing import Any

import torch

from clampgrad._torch.changes import expect_attribute


def kept(name: str) -> Any:
    """The kernels that it keeps of an operator, as "aten::clamp.Tensor"."""
    operator, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, operator), overload or "default")
    return expect_attribute(found, "_dispatch_cache")
