"""What is wrong in the environment, told to whom it concerns: a program, or who types a command.

The package is imported before any command runs, so its own code cannot be what catches such an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_ours() -> bool:
    """Whether this process is `clampgrad` or `python -m clampgrad`."""
    program = sys.argv[0] if sys.argv else ""
    if program != "-m":  # which stands there until Python has found the module
        return os.path.basename(program).removesuffix(".exe") == "clampgrad"
    before = next(i for i, word in enumerate(sys.orig_argv) if word.startswith("-m"))
    module = sys.orig_argv[before].removeprefix("-m") or sys.orig_argv[before + 1]
    return module.partition(".")[0] == "clampgrad"


@contextmanager
def one_sentence(kind: type[Exception]) -> Iterator[None]:
    """A program gets the exception; a command says what it says, and ends with 2."""
    try:
        yield
    except kind as error:
        if not is_ours():
            raise
        sys.stderr.write(f"clampgrad: error: {error}\n")
        raise SystemExit(2) from None
