"""How far a long task is, through the logger "clampgrad"; the command line shows it on stderr."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def steps(every: float = 20.0) -> Iterator[Callable[[str], None]]:
    """A function that says which step begins, and the time so far; that is said again while it lasts."""
    began, over = time.monotonic(), threading.Event()
    step = ""

    def so_far() -> str:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        return f"{minutes}:{seconds:02}"

    def say(what: str) -> None:
        nonlocal step
        step = what
        logger.info("%s  %s", so_far(), what)

    def say_again() -> None:
        while not over.wait(every):
            if step:
                logger.info("%s  still %s", so_far(), step)

    thread = threading.Thread(target=say_again, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        over.set()
        thread.join()
