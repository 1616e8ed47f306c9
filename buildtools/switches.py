"""The environment variables that a build reads: 0 or 1, or MAX_JOBS. An
empty one is as if it were not set.

At import the package reads two of them by the same rule (clampgrad/_implementation/environment.py).
"""

import os


def setting(variable: str, default: str = "0") -> str:
    value = os.environ.get(variable) or default
    if value not in ("0", "1", default):
        expected = "0 or 1" if default in ("0", "1") else f"{default}, 0 or 1"
        raise SystemExit(f"{variable}={value!r}: it is {expected}; where it is not set, {default}")
    return value


def is_set(variable: str, default: str = "0") -> bool:
    return setting(variable, default) == "1"


def jobs() -> int:
    """How many files are compiled at a time."""
    return int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)


def portable() -> bool:
    """Whether to build without an extension."""
    asked, required = is_set("CLAMPGRAD_PORTABLE"), is_set("CLAMPGRAD_REQUIRE_COMPILED")
    if asked and required:
        raise SystemExit(
            "CLAMPGRAD_PORTABLE and CLAMPGRAD_REQUIRE_COMPILED are both set: unset one of them"
        )
    return asked
