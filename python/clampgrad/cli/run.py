"""Runs a program that one cannot edit under a pin: run --gradient NAME script.py ARGS."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from importlib.util import find_spec

from clampgrad import CONVENTIONS, override


def parse(arguments: list[str]) -> tuple[override, list[str], bool]:
    """The pin, the program with its arguments, and whether it is a module."""
    parser = argparse.ArgumentParser(
        "python -m clampgrad run",
        description="Run a program with the gradient of torch.clamp and its family pinned.",
        usage="%(prog)s [-h] --gradient NAME [--maximize] (script.py | -m module) [ARGS ...]",
    )
    names = ", ".join(CONVENTIONS)
    parser.add_argument("--gradient", required=True, metavar="NAME", help=f"one of {names}")
    parser.add_argument("--maximize", action="store_true", help="the program maximises its loss")
    rest = argparse.REMAINDER
    parser.add_argument("-m", dest="module", nargs=rest, metavar="module", help="not a script")
    parser.add_argument("script", nargs=rest, metavar="script.py", help="and its arguments")
    options = parser.parse_args(arguments)
    program = options.module or options.script
    if not program:
        parser.error("nothing to run: script.py or -m module is missing")
    if options.script and not os.path.exists(program[0]):
        parser.error(f"no such file: {program[0]}")
    if options.module and not is_module(program[0]):
        parser.error(f"no module named {program[0]}")
    try:
        return override(options.gradient, maximize=options.maximize), program, bool(options.module)
    except ValueError as error:
        parser.error(str(error).splitlines()[0])


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that it is said to be in
        return False


def main(arguments: list[str]) -> int:
    pin, program, is_module = parse(arguments)
    # As python itself starts it. The pin stays on: threads may go on when the program has ended.
    sys.argv = program
    pin.enable()
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0
