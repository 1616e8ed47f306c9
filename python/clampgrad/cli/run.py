"""Runs a program that one cannot edit under a pin: run --gradient NAME script.py ARGS."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from clampgrad.functional import CONVENTIONS


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m clampgrad run",
        description="Run a program with the gradient of torch.clamp and its family pinned.",
        usage="%(prog)s [-h] --gradient NAME [--maximize] (script.py | -m module) [ARGS ...]",
    )
    parser.add_argument(
        "--gradient",
        required=True,
        choices=CONVENTIONS,
        metavar="NAME",
        help=f"one of {', '.join(CONVENTIONS)}",
    )
    parser.add_argument("--maximize", action="store_true", help="the program maximises its loss")
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="module",
        help="a module and its arguments, in place of a script",
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="script.py", help="a script and its arguments"
    )
    options = parser.parse_args(arguments)
    if not (options.module or options.program):
        parser.error("nothing to run: a script.py or -m module is needed")
    if options.program and not os.path.exists(options.program[0]):
        parser.error(f"no such file: {options.program[0]}")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    return 0
