"""Verifies patches to PyTorch's gradient formulas in an installed wheel: docs/upstream/verify.md."""

import sys
from pathlib import Path

# For the reader of the table of conventions.
sys.path.append(str(Path(__file__).resolve().parents[2] / "test"))
