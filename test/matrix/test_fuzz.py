"""Arguments that nobody thought of, in forms and contexts drawn at random.

Hypothesis draws, and shrinks a failure, which is printed as the line that runs it again. `nox -s
fuzz` draws for as long as it is told, half of it on each implementation, prints the seeds, and
adds to out/fuzz.jsonl where it finds nothing.
"""

import itertools
import os
import random
import time
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import clampgrad
import records
from testing.matrix.cells import Arg, Cell, nan
from testing.matrix.compilers import check_together
from testing.matrix.draw import CHEAP, draw, draw_together
from testing.matrix.forms import FORMS
from testing.matrix.inputs import X, inputs, layouts, vector
from testing.matrix.reference import CONVENTIONS, GRADIENTS
from testing.matrix.run import CONTEXTS, check, check_all, failure, pin_of_the_process
from testing.matrix.waivers import waived

SECONDS = float(os.environ.get("SECONDS_OF_FUZZ", 0))
OUT = Path("out/fuzz.jsonl")
SEED = int(os.environ.get("SEED_OF_FUZZ", time.time_ns() % 2**32))


LAZY = ("neg view", "conj view", "neg bound", "16 dimensions, reversed")
SAVED = ("anomaly mode", "checkpoint, not reentrant", "save_on_cpu", "saved tensors copied")
SCALAR = Arg((0.0,), ())
CUBE = Arg((0.0,) * 8, (2, 2, 2), layout="neg")
SQUARE = Arg((0.0,) * 4, (2, 2), layout="reversed")
KINDS = ("number: number", "min alone, Tensor", "Tensors", "mixed: Tensor, number")

OWN = "vmap beside torch's own"

# Cells that were once wrong, here or elsewhere.
REGRESSIONS = [
    Cell("clamp", (SCALAR, 0.1, vector((-1.0,), "bfloat16")), "half", context="dual tensors"),
    Cell("fmax", (CUBE, SQUARE), context="strides of gradients"),
    # More dimensions than a memory order holds.
    *(
        Cell("clamp", layouts("clamp")[f"{kind}: 16 dimensions, reversed"], form=form)
        for kind in ("numbers", "Tensors")
        for form in ("function", "in place", "mingrad")
    ),
    # Under a dispatch mode and below autograd, torch's own Tensor.to reads what is negated lazily
    # as it lies in memory.
    *(
        Cell(
            "maximum",
            (Arg((-0.5,), (1,), "float16", "neg"), Arg((0.1,), (1,))),
            form=form,
            context=c,
        )
        for form in ("function", "pinned function", "process, function")
        for c in ("checkpoint, selective", "make_fx, symbolic", "plain")
    ),
    # An operator that saves what it writes must save it after writing.
    *(
        Cell("clamp", args, gradient, form="in place", context=context)
        for args in (
            *(inputs("clamp")[kind] for kind in KINDS),
            *(layouts("clamp")[f"{kind}: gaps"] for kind in ("numbers", "Tensors")),
        )
        for context in SAVED
        for gradient in CONVENTIONS
    ),
    # A gradient that no kernel records is fixed before input or output change, too.
    *(
        Cell("clamp", args, gradient, form=form, context="input and output changed in place")
        for args in (
            (vector(X), nan, 1),
            (vector(X), 0, nan),
            layouts("clamp")["Tensors: 16 dimensions, reversed"],
        )
        for form in ("function", "in place")
        for gradient in CONVENTIONS
    ),
    # Beside a NaN, a bound that the dtype cannot hold is no error.
    *(
        Cell("clamp", (vector(X, dtype), *bounds), gradient, form=form)
        for dtype in ("float16", "bfloat16", "float32", "float64")
        for bounds in ((nan, 1e300), (-1e300, nan))
        for form in ("function", "in place")
        for gradient in CONVENTIONS
    ),
    # On some releases a number below the range of an unsigned dtype bounds nothing.
    Cell("clamp", (vector((1, 2), "uint8"), -1, vector((100.0, 300.0)))),
    # Up to 2.11 a NaN as the only bound of clamp has no effect, so that x is the result.
    *(
        Cell("clamp", (Arg((2.0,), ()), *bounds), gradient)
        for bounds in ((nan, None), (None, nan))
        for gradient in CONVENTIONS
    ),
    # In-place calls that the fused kernels do not take.
    *(
        Cell("clamp", args, *gradient, form="in place", context=context)
        for context, args in (
            *(("plain", layouts("clamp")[f"Tensors: {kind}"]) for kind in LAZY),
            ("plain", layouts("clamp")["numbers: neg view"]),
            *(("dual tensors that require grad", inputs("clamp")[kind]) for kind in KINDS),
        )
        for gradient in GRADIENTS
    ),
    # The gradient is batched by the outer vmap; what is written, by the inner one too.
    *(
        Cell(operator, (vector((-1.0, 0.5, 2.0)), *bounds), form=form, context="vmap vjp vmap")
        for operator, bounds in (("clamp", (None, 1)), ("clamp_max", (1,)))
        for form in ("mingrad in place", "pinned method in place")
    ),
    # A pseudo-gradient looks at x itself, not at what the number has raised it to.
    *(
        Cell("clamp", (x, 2, vector((0.0, 1.0, 0.0, 9.0))), gradient)
        for x in (vector((0, 0, 1, 5), dtype) for dtype in ("uint8", "int64", "float32"))
        for gradient in ("with_grad", "restoring")
    ),
    # Of integers torch's clamp promotes in its own way under vmap.
    *(
        Cell(
            "clamp_min",
            (Arg((1,), (1,), "int8"), Arg((2,), (1, 1), "uint8")),
            form=form,
            context=OWN,
        )
        for form in ("function", "module")
    ),
]


@pytest.mark.parametrize("cell", REGRESSIONS, ids=repr)
def test_found_once(cell):
    if reason := waived(cell):
        pytest.skip(reason)
    check(cell)


# ---- Cells that are drawn ------------------------------------------------------------------------

# The same cells each time, so that a change is judged by its own faults; `nox -s fuzz` looks for
# new ones.
FUZZ = settings(
    database=None,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[*HealthCheck],  # many draws fit no form or context
)
# What Dynamo makes of a call, without a compiler behind it.
DYNAMO = [context for context in CONTEXTS if context.startswith("compiled, ")]


def check_random_cell(r, contexts):
    cell = draw(r, contexts=contexts)
    assume(cell is not None)
    try:
        check(cell)
    except Exception as e:
        raise failure(cell, e) from e


def check_random_cells(count, contexts=CHEAP, seed=None):
    test = given(st.randoms(use_true_random=False))(lambda r: check_random_cell(r, contexts))
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    settings(FUZZ, max_examples=count, derandomize=seed is None)(test)()


def check_cells_together(cells):
    """Compiles the cells in one graph, under the process pin that they share, if any. A failure
    names the cell that fails by itself, or all."""
    pins = (pin_of_the_process(cell) for cell in cells if FORMS[cell.form].process)
    try:
        with next(pins, nullcontext()):
            check_together(cells)
    except Exception as e:
        for cell in cells:
            check_all([cell])
        raise failure(cells, e) from e


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.thorough)])
def test_random_cells_hold(count):
    check_random_cells(count)


@pytest.mark.skipif(not SECONDS, reason="nox -s fuzz asks for it")
def test_random_cells_hold_for_as_long_as_asked():
    print(f"\nfuzz: seed {SEED}", flush=True)
    ends, ran = time.monotonic() + SECONDS, 0
    for seed in itertools.count(SEED):
        check_cells_together(draw_together(random.Random(seed), 20))
        check_random_cells(10, DYNAMO, seed)
        check_random_cells(1000, CHEAP, seed)
        ran += 1030
        if time.monotonic() > ends:
            break
    print(f"fuzz: {ran} cells in {SECONDS:.0f} s, nothing found")
    release = torch.__version__.split("+")[0]
    new_row = {"implementation": clampgrad.implementation, "torch": release}
    new_row |= {"seconds": round(SECONDS), "seed": SEED, "cells": ran}
    others = records.read(OUT)["rows"] if OUT.exists() else []
    others = [row for row in others if row["implementation"] != clampgrad.implementation]
    records.write(OUT, [*others, new_row], commit=None, what="cells that hold, drawn at random")
