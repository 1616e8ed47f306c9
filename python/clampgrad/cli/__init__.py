"""The command line: `clampgrad COMMAND`, or `python -m clampgrad COMMAND`.

Every command is a module of this package with a function `main(arguments)`; it is
imported when it is asked for. Results go to stdout; progress and messages go to stderr
through the logger "clampgrad".
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from clampgrad._implementation.build import VERSION
from clampgrad.cli.output import write

COMMANDS = {
    "run": "run a program with the gradient of torch.clamp and its family pinned",
    "audit": "run a program; report unsafe bounds, and gradients that depend on the convention",
    "survey": "measure the gradients of the installed PyTorch at kinks and ties",
    "info": "show versions, and which implementation runs here and why",
}


def main(arguments: Sequence[str] | None = None) -> int | str | None:
    """Runs a command, and returns the exit status for sys.exit."""
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
        write(VERSION)
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
