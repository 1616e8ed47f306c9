"""The state that torch copies from a thread to the threads that work for it: backward on a GPU,
deeply nested backward, and torch.jit.fork.

torch stores objects of Python by name in the state of a thread, and puts that state in place
wherever it does the work of that thread. We store one object there. Threads that Python starts do
not get it.
"""

import ctypes
import sys
from typing import Any

import torch

NAME = "clampgrad.pin"


def get_thread_value() -> Any:
    """Returns the object that this thread stores, or None."""
    return torch._C._get_obj_in_tls(NAME) if torch._C._is_key_in_tls(NAME) else None


def set_thread_value(thing: Any) -> None:
    """Stores an object in place of the previous one. None removes it."""
    if thing is None and CAN_REMOVE:
        torch._C._remove_obj_from_tls(NAME)
        return
    if STEALS_REFERENCE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    torch._C._stash_obj_in_tls(NAME, thing)


def steals_reference() -> bool:
    """Whether torch releases a reference to the stored object that it never took, as up to 2.11."""
    thing = object()
    before = sys.getrefcount(thing)
    torch._C._stash_obj_in_tls(NAME, thing)
    taken = sys.getrefcount(thing) == before
    if taken:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return taken


CAN_REMOVE = hasattr(torch._C, "_remove_obj_from_tls")
STEALS_REFERENCE = steals_reference()
set_thread_value(None)
