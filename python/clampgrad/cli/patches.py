"""clampgrad patches: PyTorch's own source, patched, and any such patch proved."""

from __future__ import annotations

from clampgrad.patches.__main__ import main

__all__ = ["main"]
