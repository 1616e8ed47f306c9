"""What torch hands on from a thread to the threads that work for it: backward on a GPU, or
deeply nested, and torch.jit.fork.

torch keeps objects of Python by name in the state of a thread, and puts that state in place
wherever it does the work of that thread. We keep one there. No thread of Python's own is given it.
"""

import ctypes
import sys
from typing import Any

import torch

NAME = "clampgrad.pin"


def kept() -> Any:
    """What this thread keeps, or None."""
    return torch._C._get_obj_in_tls(NAME) if torch._C._is_key_in_tls(NAME) else None


def keep(thing: Any) -> None:
    """In place of what was kept. None is nothing."""
    if thing is None and CAN_REMOVE:
        torch._C._remove_obj_from_tls(NAME)
        return
    if TAKES_A_REFERENCE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    torch._C._stash_obj_in_tls(NAME, thing)


def takes_a_reference() -> bool:
    """Whether what is kept loses a reference that was never counted, as in releases up to 2.11."""
    thing = object()
    before = sys.getrefcount(thing)
    torch._C._stash_obj_in_tls(NAME, thing)
    taken = sys.getrefcount(thing) == before
    if taken:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return taken


CAN_REMOVE = hasattr(torch._C, "_remove_obj_from_tls")
TAKES_A_REFERENCE = takes_a_reference()
keep(None)
