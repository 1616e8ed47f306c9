"""python -m clampgrad COMMAND ...: the same as the console script `clampgrad`."""

import sys

from clampgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
