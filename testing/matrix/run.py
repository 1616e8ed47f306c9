"""Lists the cells, chooses those that run, and runs one."""

from contextlib import contextmanager, nullcontext
from functools import cache

import clampgrad
import testing.matrix.compilers
import testing.matrix.levels  # noqa: F401  (they add contexts)
from oracle import CLAMPS
from testing.matrix.cells import Cell, expected
from testing.matrix.contexts import CONTEXTS
from testing.matrix.forms import FORMS
from testing.matrix.inputs import inputs, layouts
from testing.matrix.reference import ARGUMENTS, GRADIENTS, PSEUDO
from testing.matrix.waivers import refused, waived


def applies(cell):
    """Whether there is such a call: the form takes the arguments, the context the form."""
    return FORMS[cell.form].accepts(cell) and CONTEXTS[cell.context].accepts(cell)


@contextmanager
def pin_of_the_process(cell):
    clampgrad.set_pin(cell.gradient, maximize=cell.maximize)
    try:
        yield
    finally:
        clampgrad.set_pin(None)


def check(cell):
    """Raises if the cell is wrong; returns the reason if a pin refuses it, where it may."""
    form = FORMS[cell.form]
    f = form.make(cell)
    expected(cell)  # without the pin
    with pin_of_the_process(cell) if form.process else nullcontext():
        try:
            CONTEXTS[cell.context].run(f, cell)
        except RuntimeError as e:
            if reason := refused(cell, e):
                return reason
            raise
    return None


def failure(cell, error):
    return AssertionError(f'\n  python -m testing.matrix "{cell}"\n{type(error).__name__}: {error}')


def check_all(cells):
    """Checks the cells that exist. The first failure names the line that runs it again."""
    for cell in cells:
        if applies(cell) and not waived(cell):
            try:
                check(cell)
            except Exception as e:
                raise failure(cell, e) from e


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
