"""Every form in every context, with every kind of arguments and every convention.

The quick tier runs a few cells of each form in each context, the thorough one many; which ones
depends on the release of torch, so that releases share the work. A failure is printed as the line
that runs it again.
"""

import random
from dataclasses import replace

import pytest
import torch

from matrix.run import CONTEXTS, FORMS, applies, calls, check, spoilt, waived

PAIRS = [
    (context, form)
    for context in CONTEXTS
    for form in FORMS
    if not CONTEXTS[context].costly and FORMS[form].writes <= CONTEXTS[context].records_nothing
]


def some(context, form, count):
    """That many cells, or what is found of them: other ones for every pair and release."""
    order = random.Random(f"{context}, {form}, {torch.__version__}")
    found = 0
    for call in order.sample(calls(), min(25 * count, len(calls()))):
        cell = replace(call, form=form, context=context)
        if applies(cell) and not waived(cell) and not spoilt(cell):
            yield cell
            found += 1
        if found == count:
            break


def run(cells):
    for cell in cells:
        try:
            check(cell)
        except Exception as e:
            raise AssertionError(f'\n  python -m matrix "{cell}"\n{type(e).__name__}: {e}') from e


@pytest.mark.parametrize("context, form", PAIRS)
def test_few(context, form):
    run(some(context, form, 3))


@pytest.mark.thorough
@pytest.mark.parametrize("context, form", PAIRS)
def test_many(context, form):
    run(some(context, form, 60))
