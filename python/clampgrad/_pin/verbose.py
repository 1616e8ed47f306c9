"""CLAMPGRAD_VERBOSE=1, which `clampgrad run -v` sets: what each process
pins, and what the pin reached."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections import Counter
from contextlib import suppress

import torch

from clampgrad import _implementation
from clampgrad._contract.words import format_count
from clampgrad._implementation.build import VERSION
from clampgrad._implementation.environment import is_set
from clampgrad._torch.torchs_functions import EXTREMA

NOTHING = (
    "warning: the pin reached no call: in this process nothing was differentiated through "
    f"{', '.join(['clamp', *EXTREMA[:-1]])} or {EXTREMA[-1]}"
)


def is_wanted() -> bool:
    """Whether CLAMPGRAD_VERBOSE is set. Raises ValueError where it is neither 0 nor 1, so `set_pin`
    calls this before it pins."""
    try:
        return is_set("CLAMPGRAD_VERBOSE")
    except ImportError as error:
        raise ValueError(str(error)) from None


def announce_pin(name: str | None) -> None:
    """Prints a line for a pin of the process, and one when the process ends."""
    if is_wanted():
        kind = f"{_implementation.name} implementation, torch {torch.__version__}"
        say(f"pinned to {name} ({kind}, clampgrad {VERSION})")
        report_at_exit()


@functools.cache
def report_at_exit() -> None:
    atexit.register(report)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            after_in_child=lambda: inherited_counts.update(count_pinned_calls() - inherited_counts)
        )


inherited_counts: Counter[str] = Counter()  # of the process that forked this one


def count_pinned_calls() -> Counter[str]:
    """Counts the calls of each operator that got the gradient of a pin, its overloads together."""
    counts: Counter[str] = Counter()
    for name, calls in _implementation.pin_call_counts().items():
        counts[name.removeprefix("aten::").partition(".")[0]] += calls
    return counts


def report() -> None:
    counts = count_pinned_calls() - inherited_counts
    calls = ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
    say(f"the pin reached {format_count(counts.total(), 'call')}: {calls}" if counts else NOTHING)


def say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # stderr is closed
        sys.stderr.write(f"clampgrad: process {os.getpid()}: {text}\n")
        sys.stderr.flush()
