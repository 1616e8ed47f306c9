"""Programs that the script runs, each with its output in a log. What a program started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST = 2 * 3600  # seconds: a test file takes minutes, and one that hangs takes for ever

running: set[int] = set()  # process groups
stopped = threading.Event()  # nothing is to be started any more


def run(command: list[str], log: Path, **how: Any) -> int | str:
    """The exit code of a command; of one that does not end, a sentence."""
    with log.open("w") as file:
        process = started(command, stdout=file, **how)
        try:
            return process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            return f"no end after {LONGEST // 3600} hours"
        finally:
            end(process)


def watched(command: list[str], log: Path, see: Callable[[str], None], **how: Any) -> int:
    """The exit code of a command. Each line of its output goes to the log, and to `see`."""
    print(f"    log: {log}", flush=True)
    with log.open("w", buffering=1) as file:
        process = started(command, stdout=subprocess.PIPE, text=True, errors="replace", **how)
        assert process.stdout
        try:
            for line in process.stdout:
                file.write(line)
                see(line)
            return process.wait()
        finally:
            end(process)


def started(command: list[str], **how: Any) -> subprocess.Popen[Any]:
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, start_new_session=True, **how)
    running.add(process.pid)
    if stopped.is_set():
        end(process)
    return process


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process with all that it started, which may go on when the process itself has ended."""
    end_group(process.pid)
    process.wait()
    running.discard(process.pid)


def end_all() -> None:
    """Ends what any thread started, or is about to start: only the main thread sees an interrupt."""
    stopped.set()
    for group in list(running):
        end_group(group)


def end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def interrupt_on_signals() -> None:
    """Turns signals that would end this process into an interrupt, so that it ends what it started first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            continue  # as nohup asks
        signal.signal(number, signal.default_int_handler)
