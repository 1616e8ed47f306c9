"""Every convention in pictures: gallery DIR."""

from __future__ import annotations

import argparse

from clampgrad._plot import gallery


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m clampgrad gallery", description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="where the pictures go; made if missing")
    for path in gallery(parser.parse_args(arguments).folder):
        print(f"wrote {path}")
    return 0
