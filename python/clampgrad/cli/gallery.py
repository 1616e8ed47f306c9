"""clampgrad gallery: every convention in pictures."""

from __future__ import annotations

import argparse

from clampgrad.cli.output import write, write_json


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("clampgrad gallery", description="Draw every convention.")
    parser.add_argument("folder", metavar="DIR", help="where the pictures go; made if missing")
    parser.add_argument("--json", action="store_true", help="print the paths as JSON")
    options = parser.parse_args(arguments)
    from clampgrad._plot import gallery

    paths = [str(path) for path in gallery(options.folder)]
    if options.json:
        write_json({"pictures": paths})
    else:
        write("\n".join(f"wrote {path}" for path in paths))
    return 0
