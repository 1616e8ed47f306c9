"""Arguments that nobody thought of, in forms and contexts drawn at random.

A failure is shrunk, and printed as the line that runs it again; its seed is printed by hypothesis.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from matrix.cells import LAYOUTS, Arg, Cell, inf, nan
from matrix.inputs import grown
from matrix.reference import ARGUMENTS, CLAMPS, GRADIENTS, PSEUDO
from matrix.run import CONTEXTS, FORMS, applies, check, spoilt, waived

SECONDS = float(os.environ.get("SECONDS_OF_FUZZ", 0))
CHEAP = [c for c in CONTEXTS if not CONTEXTS[c].costly]
# Ties come after the conversion to the result's dtype: 0.1 is another number in each.
VALUES = [0.0, 1.0, 2.0, -1.0, 0.1, 0.5, -0.0, inf, -inf, nan, 3.0, 1e-7, 65504.0]
NUMBERS = [0, 1, -1, 2, 0.0, 0.5, 0.1, 1.0, -0.0, inf, -inf, nan]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]


@st.composite
def cells(draw):
    operator = draw(st.sampled_from(list(ARGUMENTS)))
    gradient, maximize = draw(
        st.sampled_from([g for g in GRADIENTS if operator in CLAMPS or g[0] not in PSEUDO])
    )
    count = len(ARGUMENTS[operator])
    shapes = draw(mutually_broadcastable_shapes(num_shapes=count, max_dims=4, max_side=4))
    one_dtype = draw(st.booleans())
    dtype = draw(st.sampled_from(FLOATS))
    args = []
    for shape in shapes.input_shapes:
        kind = (
            "Tensor"
            if not args or operator not in CLAMPS
            else draw(st.sampled_from(["Tensor", "number"]))
        )
        if kind == "number":
            args.append(draw(st.sampled_from(NUMBERS)))
            continue
        here = dtype if one_dtype else draw(st.sampled_from(FLOATS + INTEGERS))
        values = [v for v in VALUES if here in FLOATS or v in (0.0, 1.0, 2.0, 3.0)]
        some = draw(st.lists(st.sampled_from(values), min_size=1, max_size=12))
        want = draw(st.booleans()) or not args
        layout = draw(st.sampled_from(list(LAYOUTS))) if here in FLOATS else "plain"
        args.append(Arg(grown(tuple(some), shape), shape, here, layout, want))
    if operator == "clamp" and draw(st.integers(0, 4)) == 0:
        args[draw(st.sampled_from([1, 2]))] = None
    form = draw(st.sampled_from(list(FORMS)))
    context = draw(st.sampled_from(CHEAP))
    cell = Cell(operator, tuple(args), gradient, maximize, form, context, draw(st.integers(0, 9)))
    assume(FORMS[form].writes <= CONTEXTS[context].records_nothing)
    return cell


def fuzz(examples, seconds=None):
    ends = time.monotonic() + (seconds or 1e9)
    ran = [0]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seconds is None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(cells())
    def run(cell):
        if time.monotonic() > ends:
            return
        try:
            applicable = applies(cell) and not waived(cell) and not spoilt(cell)
        except RuntimeError:  # torch's own operator takes no such arguments
            applicable = False
        assume(applicable)
        ran[0] += 1
        try:
            check(cell)
        except Exception as e:
            raise AssertionError(f'\n  python -m matrix "{cell}"\n{type(e).__name__}: {e}') from e

    run()
    return ran[0]


def test_briefly():
    assert fuzz(150) > 20


@pytest.mark.thorough
def test_for_longer():
    assert fuzz(4000) > 500


@pytest.mark.skipif(not SECONDS, reason="make fuzz SECONDS=... asks for it")
def test_for_as_long_as_asked():
    ends, ran = time.monotonic() + SECONDS, 0
    while (left := ends - time.monotonic()) > 0:
        ran += fuzz(3000, left)
    print(f"fuzz: {ran} cells in {SECONDS:.0f} s, nothing found")
