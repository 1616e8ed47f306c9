"""How far a long task is, through the logger "clampgrad"; the command line shows it on stderr."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

logger = logging.getLogger("clampgrad")

QUIET = 2.0  # seconds without a word


def progress(what: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yields the items, and says how far it is every two seconds."""
    last = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - last >= QUIET:
            logger.info("%s: %d of %d", what, done, len(items))
            last = time.monotonic()
        yield item
