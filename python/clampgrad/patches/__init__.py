"""PyTorch's own source, patched: `python -m clampgrad.patches`. docs/upstream.md tells the story."""
