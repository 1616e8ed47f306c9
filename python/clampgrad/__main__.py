"""python -m clampgrad COMMAND ...: the commands are the modules of clampgrad.cli."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = ("audit", "gallery", "run", "survey")


def usage() -> str:
    lines = ["usage: python -m clampgrad COMMAND ...", ""]
    for name in COMMANDS:
        summary = (import_module(f"clampgrad.cli.{name}").__doc__ or "").splitlines()[0]
        lines.append(f"  {name:10} {summary}")
    return "\n".join([*lines, "", "python -m clampgrad COMMAND --help says more."])


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"clampgrad: no command {command!r}\n\n{usage()}", file=sys.stderr)
        return 2
    return import_module(f"clampgrad.cli.{command}").main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
