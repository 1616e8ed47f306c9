"""A block for calls of our own, which are not the program's: no audit is told of them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_here = threading.local()


def is_quiet() -> bool:
    """Whether such a block is open in this thread."""
    return getattr(_here, "quiet", False)


@contextmanager
def quietly() -> Iterator[None]:
    before = is_quiet()
    _here.quiet = True
    try:
        yield
    finally:
        _here.quiet = before
