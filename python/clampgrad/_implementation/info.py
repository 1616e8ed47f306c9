"""Which implementation runs here, why, and how to get the other: what `clampgrad info` says."""

import sys
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._implementation.library import TO_MEND, libraries


def instruction_set(compiled: bool) -> str:
    """What the kernels of the CPU use here. ATen's choice decides for the compiled ones too
    (csrc/kernels/fused.cpp); the portable implementation runs torch's kernels."""
    chosen = torch.backends.cpu.get_cpu_capability()
    if compiled and sys.platform == "win32":
        return "DEFAULT"  # MSVC has no vector extension
    return chosen if compiled else f"{chosen} (torch's kernels)"


def info() -> dict[str, Any]:
    compiled = _implementation.name == "compiled"
    folder = _implementation.functions.__name__.split(".")[-2] if compiled else ""
    other = "set CLAMPGRAD_PORTABLE=1" if compiled else TO_MEND
    if _implementation.why.startswith("CLAMPGRAD_PORTABLE") and libraries():
        other = "unset CLAMPGRAD_PORTABLE"
    sees = "torch's operators, whoever calls them"
    return {
        "implementation": _implementation.name,
        "because": _implementation.why,
        "libraries": list(libraries()),
        "torch": torch.__version__,
        "cuda_kernels": "_cu" in folder,
        "instruction_set": instruction_set(compiled),
        "pin_sees": sees if compiled else "calls from Python, in the threads that are pinned",
        "to_change": other,
    }
