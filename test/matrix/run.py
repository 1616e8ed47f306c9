"""Which cells there are, which of them run, and one cell run."""

from functools import cache

import matrix.compilers
import matrix.levels  # noqa: F401  (they add contexts)
from matrix.cells import Arg, Cell, inf, nan
from matrix.contexts import CONTEXTS
from matrix.forms import FORMS
from matrix.inputs import inputs, layouts
from matrix.reference import ARGUMENTS, CLAMPS, GRADIENTS, PSEUDO
from matrix.waivers import waived


def applies(cell):
    """Whether there is such a call: the form takes the arguments, the context the form."""
    return FORMS[cell.form].accepts(cell) and CONTEXTS[cell.context].accepts(cell)


def check(cell):
    """Raises where the cell is not what it should be."""
    CONTEXTS[cell.context].run(FORMS[cell.form].make(cell), cell)


@cache
def calls():
    """Everything that is enumerated, form and context left out."""
    return [
        Cell(operator, args, gradient, maximize)
        for operator in ARGUMENTS
        for args in (*inputs(operator).values(), *layouts(operator).values())
        for gradient, maximize in GRADIENTS
        if operator in CLAMPS or gradient not in PSEUDO
    ]


__all__ = [
    "CONTEXTS",
    "FORMS",
    "Arg",
    "Cell",
    "applies",
    "calls",
    "check",
    "inf",
    "nan",
    "waived",
]
