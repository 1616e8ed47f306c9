"""Locks that a child of a fork does not find locked for good, by a thread that it does not have."""

from __future__ import annotations

import os
from typing import Any


def held_over_forks(lock: Any) -> Any:
    """The lock, an RLock, which whoever forks holds meanwhile. What is held first is made last."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
