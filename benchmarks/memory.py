"""The bytes that autograd keeps between forward and backward, and the peak of a step."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import torch


def saved_bytes(function: Callable, *inputs: torch.Tensor) -> int:
    """Bytes of the storages that the graph keeps, each once."""
    storages = {}

    def pack(t):
        storage = t.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(*inputs)
    return sum(storages.values())


def peak_bytes(step: Callable) -> int | None:
    """The largest increase of this process's resident size during a step (Linux with glibc)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or not status.exists():
        return None
    step()
    trim(0)  # what was freed before counts again
    try:
        reset.write_text("5")
    except OSError:
        return None

    def kilobytes(field):
        return int(re.search(rf"{field}:\s+(\d+) kB", status.read_text())[1])

    before = kilobytes("VmRSS")
    step()
    return 1024 * max(0, kilobytes("VmHWM") - before)
