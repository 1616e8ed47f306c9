"""The command line: `clampgrad COMMAND`, or `python -m clampgrad COMMAND`.

Every command is a module of this package with a function `main(arguments)`; it is imported when it is
asked for. What a command has to say goes to stdout, progress and complaints go to stderr through the
logger "clampgrad".
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "run a program under a pin: one named gradient for torch's own clamp and its family",
    "audit": "run a program and report where its bounds are trouble, and where the gradient matters",
    "survey": "measure what the installed torch does at kinks and ties, beside what it documents",
    "gallery": "draw every convention",
    "info": "say which implementation runs here, and why",
    "patches": "apply PyTorch's own source patches, or prove one in the installed torch",
}


def main(arguments: Sequence[str] | None = None) -> int | str | None:
    """What the process exits with, as sys.exit takes it."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        "clampgrad", description="One forward and a named, pinned gradient for clamp."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    # The command itself reads the rest: only then do we know, and import, which one it is.
    options = parser.parse_args(words[:1])
    if options.version:
        from clampgrad import __version__
        from clampgrad.cli.output import write

        write(__version__)
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    _log_to_stderr()
    return import_module(f"clampgrad.cli.{options.command}").main(words[1:])


def _log_to_stderr() -> None:
    """Shows our own messages, and leaves the loggers of the program that we may run alone."""
    logger = logging.getLogger("clampgrad")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("clampgrad: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
