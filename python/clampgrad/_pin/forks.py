"""Locks that are free in the child of a fork: a thread that held one in the parent is not there to release it."""

from __future__ import annotations

import os
from typing import Any


def held_over_forks(lock: Any) -> Any:
    """Returns the lock, an RLock, which the thread that forks holds during the fork.

    Python calls the hooks of `before` in reverse: of two locks, the one that is made last is taken first.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
