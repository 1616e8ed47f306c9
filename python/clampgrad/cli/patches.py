"""clampgrad patches: patches for PyTorch's own source, applied and verified."""

from __future__ import annotations

from clampgrad.patches.__main__ import main

__all__ = ["main"]
