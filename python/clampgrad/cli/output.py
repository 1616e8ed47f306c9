"""What a command prints on stdout."""

import json
import os
import sys
from typing import Any

BROKEN_PIPE = 141  # what a shell reports of a process that SIGPIPE ended


def write(text: str) -> None:
    """Prints text; ends the process without a message if nobody reads any more (`| head -1`)."""
    if sys.stdout is None:  # closed by whoever started us
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer must not fail again when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None


def write_json(data: Any) -> None:
    write(json.dumps(data, indent=1, allow_nan=False))
