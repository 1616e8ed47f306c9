"""Somebody's program, run as python itself runs it: script.py ARGS, or -m module ARGS."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from importlib.util import find_spec

USAGE = "(script.py | -m module) [ARGS ...]"


def add_to(parser: argparse.ArgumentParser) -> None:
    rest = argparse.REMAINDER
    parser.add_argument("-m", dest="module", nargs=rest, metavar="module", help="not a script")
    parser.add_argument("script", nargs=rest, metavar="script.py", help="and its arguments")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a message if there is nothing to run."""
    if options.module:
        if not is_module(options.module[0]):
            parser.error(f"no module named {options.module[0]}")
    elif not options.script:
        parser.error("nothing to run: script.py or -m module is missing")
    elif not os.path.exists(options.script[0]):
        parser.error(f"no such file: {options.script[0]}")


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that it is said to be in
        return False


def run(options: argparse.Namespace) -> None:
    if options.module:
        sys.argv = options.module
        runpy.run_module(options.module[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = options.script
        sys.path[0] = os.path.dirname(os.path.abspath(options.script[0]))
        runpy.run_path(options.script[0], run_name="__main__")
