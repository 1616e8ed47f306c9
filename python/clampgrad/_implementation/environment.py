"""Environment variables that are switches, and how the package reports an error while it is imported.

A program gets an exception, the command `clampgrad` prints one sentence. The command cannot catch the exception
itself, because the package is imported before it runs.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_set(variable: str) -> bool:
    """Whether a switch is on; buildtools/switches.py reads those of the build by the same rule."""
    value = os.environ.get(variable) or "0"
    if value not in ("0", "1"):
        raise ImportError(f"{variable}={value!r}: it is 1 or, as when it is not set, 0")
    return value == "1"


def is_ours() -> bool:
    """Whether this process is `clampgrad` or `python -m clampgrad`."""
    program = sys.argv[0] if sys.argv else ""
    if program != "-m":  # which stands there until Python has found the module
        return os.path.basename(program).removesuffix(".exe") == "clampgrad"
    return module_of(sys.orig_argv).partition(".")[0] == "clampgrad"


def module_of(command: list[str]) -> str:
    """The module after -m in a command of python. Other options may stand in the same word: -Im."""
    words = iter(command[1:])
    for word in words:
        if option := re.fullmatch(r"-[^-cmWX]*([cmWX])(.*)", word, re.DOTALL):
            value = option[2] or next(words, "")
            if option[1] == "m":
                return value
    return ""


@contextmanager
def one_sentence(kind: type[Exception]) -> Iterator[None]:
    """Raises the error in a program. A command prints its message and ends with 2."""
    try:
        yield
    except kind as error:
        if not is_ours():
            raise
        sys.stderr.write(f"clampgrad: error: {error}\n")
        raise SystemExit(2) from None
