"""PyTorch's own source, patched: `python -m clampgrad.patches`. docs/upstream/build.md tells the story."""
