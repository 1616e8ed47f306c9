"""Runs the cells that are given as text: python -m testing.matrix "Cell(...)"."""

import sys

from testing.matrix.cells import Arg, Cell, inf, nan
from testing.matrix.run import check

for text in sys.argv[1:]:
    check(eval(text, {"Arg": Arg, "Cell": Cell, "inf": inf, "nan": nan}))
    print("holds:", text)
