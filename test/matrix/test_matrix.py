"""Every form in every context, with every kind of arguments and every convention.

The quick tier runs a few cells of each form in each context, the thorough one many; which ones
depends on the release of torch, so that releases share the work. A failure is printed as the line
that runs it again.
"""

import random
from dataclasses import replace
from itertools import islice

import pytest
import torch

from testing.cases import slow_after
from testing.matrix.cells import Arg, Cell, expected
from testing.matrix.run import CONTEXTS, FORMS, applies, calls, check_all, waived

PAIRS = [
    (context, form)
    for context in CONTEXTS
    for form in FORMS
    if not CONTEXTS[context].costly and FORMS[form].writes <= CONTEXTS[context].records_nothing
]


def some(context, form, count):
    """That many cells, or as many as there are; different ones for every pair and release."""
    order = random.Random(f"{context}, {form}, {torch.__version__}")
    sample = order.sample(calls(), min(25 * count, len(calls())))
    cells = (replace(call, form=form, context=context) for call in sample)
    return islice((cell for cell in cells if applies(cell) and not waived(cell)), count)


def of_any_form(context):
    """A cell of each form that has one, for contexts that cost seconds per cell."""
    forms = [form for form in FORMS if not FORMS[form].writes]
    random.Random(f"{context}, {torch.__version__}").shuffle(forms)
    return (cell for form in forms for cell in some(context, form, 1))


def test_what_is_expected_depends_on_the_kind_of_a_number():
    x = Arg((3,), (), dtype="int32")
    kinds = [expected(Cell("clamp_max", (x, number))).value.dtype for number in (0, 0.0)]
    assert kinds == [torch.int32, torch.float32]


@pytest.mark.parametrize("context", dict(PAIRS))
def test_one_cell_of_each_form_and_context(context):
    check_all(cell for c, form in PAIRS if c == context for cell in some(context, form, 1))


@pytest.mark.thorough
@pytest.mark.parametrize("count", slow_after(1, [6, 20]))
@pytest.mark.parametrize("context, form", PAIRS)
def test_many_cells_of_each_form_and_context(context, form, count):
    check_all(some(context, form, count))


COSTLY = [context for context in CONTEXTS if CONTEXTS[context].costly]


@pytest.mark.parametrize("context", [c for c in COSTLY if "Inductor" not in c])
def test_one_compiled(context):
    check_all([next(of_any_form(context))])  # StopIteration where there is none


@pytest.mark.parametrize("form", [form for form in FORMS if not FORMS[form].writes])
def test_every_form_compiled(form):
    check_all(some("compile, aot_eager", form, 1))


def test_every_release_draws_a_cell_for_every_compiler(monkeypatch):
    for release in range(30):
        monkeypatch.setattr(torch, "__version__", f"2.{release}.0")
        assert all(map(any, map(of_any_form, COSTLY)))


@pytest.mark.thorough
@pytest.mark.parametrize("context", COSTLY)
def test_some_compiled(context):
    """More of them than in the test above."""
    check_all(islice(of_any_form(context), *((0, 4) if "Inductor" in context else (1, 6))))


@pytest.mark.slow
@pytest.mark.parametrize("context", [c for c in COSTLY if "Inductor" not in c])
def test_the_rest_compiled(context):
    check_all(islice(of_any_form(context), 6, None))
