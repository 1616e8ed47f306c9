"""Runs the cells that are given as text: PYTHONPATH=test python -m matrix "Cell(...)"."""

import sys

from matrix.cells import Arg, Cell, inf, nan
from matrix.run import check

for text in sys.argv[1:]:
    check(eval(text, {"Arg": Arg, "Cell": Cell, "inf": inf, "nan": nan}))
    print("holds:", text)
