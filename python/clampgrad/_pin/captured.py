"""The warning about a pin that is entered while a graph is captured: the graph does not keep it."""

from __future__ import annotations

import warnings

from clampgrad._torch.surroundings import is_capturing_graph


def format_pin(name: str | None) -> str:
    """Returns a pin as errors and warnings show it."""
    return f"<clampgrad.pin: {name}>"


def warn_if_captured(name: str | None, stacklevel: int) -> None:
    if is_capturing_graph():
        warnings.warn(
            f"{format_pin(name)} is entered while a graph is captured. The graph has the gradient of "
            "the pin under which the graph runs, and not of this one. To keep a convention "
            "in it, call clampgrad.clamp and its family",
            stacklevel=stacklevel,
        )
