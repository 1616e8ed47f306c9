"""clampgrad run: a program under a pin, without editing it."""

from __future__ import annotations

import argparse

from clampgrad import CONVENTIONS, pin
from clampgrad._table import ALIASES
from clampgrad.cli import program


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        "clampgrad run",
        description="Run a program with the gradient of torch.clamp and its family pinned.",
        usage=f"%(prog)s [-h] --gradient NAME [--maximize] {program.USAGE}",
        allow_abbrev=False,
    )
    names = ", ".join(CONVENTIONS)
    parser.add_argument(
        "--gradient",
        required=True,
        metavar="NAME",
        help=f"one of {names}, or an alias: {', '.join(ALIASES)}",
    )
    parser.add_argument(
        "--maximize",
        action="store_true",
        help="the program maximises its loss (with_grad and restoring)",
    )
    options, theirs = program.parse(parser, arguments)
    try:
        chosen = pin(options.gradient, maximize=options.maximize)
    except ValueError as error:
        parser.error(str(error).splitlines()[0])
    chosen.enable()  # and it stays on: threads may go on when the program has ended
    theirs.run()
