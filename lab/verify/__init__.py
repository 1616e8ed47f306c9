"""Verifies patches to PyTorch's gradient formulas in an installed
wheel: docs/upstream/verify.md."""
