"""clampgrad info: which implementation runs here, and why."""

import argparse
import platform
from typing import Any

from clampgrad._implementation.build import VERSION
from clampgrad._implementation.info import info
from clampgrad._pin.installed import patched
from clampgrad._pin.state import current
from clampgrad.cli.output import write, write_json


def facts() -> dict[str, Any]:
    return {
        "clampgrad": VERSION,
        **info(),
        "patched": patched(),
        "pinned": current(),
        "python": platform.python_version(),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad info", description="Show versions, and which implementation runs here and why."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = facts()
    if parser.parse_args(arguments).json:
        write_json(found)
    else:
        width = max(map(len, found))
        lines = (f"{k.replace('_', ' '):{width}}  {shown(v)}" for k, v in found.items())
        write("\n".join(lines))
    return 0


def shown(value: Any) -> str:
    """A value as a person reads it."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
