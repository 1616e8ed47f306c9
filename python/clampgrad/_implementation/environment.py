"""Environment variables that are switches."""

import os


def is_set(variable: str) -> bool:
    """Whether a switch is on; buildtools/switches.py reads those of the build by the same rule."""
    value = os.environ.get(variable) or "0"
    if value not in ("0", "1"):
        raise ImportError(f"{variable}={value!r}: it is 1 or, as when it is not set, 0")
    return value == "1"
