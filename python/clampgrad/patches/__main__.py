"""python -m clampgrad.patches: the same as `clampgrad patches`."""

import sys

from clampgrad.cli import main

if __name__ == "__main__":
    sys.exit(main(["patches", *sys.argv[1:]]))
