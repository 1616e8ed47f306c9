"""Runs a program that one cannot edit under a pin: run --gradient NAME script.py ARGS."""

from __future__ import annotations

import argparse

from clampgrad import CONVENTIONS, pin
from clampgrad.cli import program


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m clampgrad run",
        description="Run a program with the gradient of torch.clamp and its family pinned.",
        usage=f"%(prog)s [-h] --gradient NAME [--maximize] {program.USAGE}",
    )
    names = ", ".join(CONVENTIONS)
    parser.add_argument("--gradient", required=True, metavar="NAME", help=f"one of {names}")
    parser.add_argument("--maximize", action="store_true", help="the program maximises its loss")
    program.add_to(parser)
    options = parser.parse_args(arguments)
    program.check(parser, options)
    try:
        chosen = pin(options.gradient, maximize=options.maximize)
    except ValueError as error:
        parser.error(str(error).splitlines()[0])
    chosen.enable()  # and it stays on: threads may go on when the program has ended
    program.run(options)
    return 0
