"""Looks for mistakes in a series of patches, in an installed wheel: docs/upstream/verify.md."""
