"""Runs PyTorch's own operators through the matrix of testing/matrix, where the expected gradients
are those of a series:

    python -m lab.verify.cells ANSWER [LIBRARY CONVENTION [WORD...]]

A process of its own, because the LIBRARY of formulas (lab/verify/library.py) stays registered. The
words are the scope of the series. Without them all, the installed torch must have the convention of
its release.
"""

import json
import random
import sys
import warnings
from collections import Counter, defaultdict
from dataclasses import replace

import torch

from lab.series import Series
from testing.matrix.forms import FORMS, Form, both, function, has_in_place, method, one_kind, torchs
from testing.matrix.reference import ARGUMENTS
from testing.matrix.run import CONTEXTS, applies, calls, check, waived
from testing.releases import RELEASE, RELEASED

LISTS = ("clamp_min", "clamp_max", "maximum", "minimum")
# What part of the calls runs in each context, by form; of each operator, how many are compiled.
PARTS = {"torch's own": 0.5, "torch's own in place": 0.1, "torch's own in a list": 0.1}
COMPILED = {"compile, aot_eager": 2, "compile, aot_eager, dynamic": 2, "compile, Inductor": 4}


def kind_of(cell):
    return "numbers" if cell.numbers else "tensors"


def convention_of(cell, series):
    """Returns the convention of torch's own operator with a series."""
    covered = series and series.covers(cell.operator, kind_of(cell))
    return series.convention if covered else RELEASED


def in_a_list(cell):
    """Calls an operator for a list of two Tensors and returns the second result. The first Tensor
    is elsewhere between its bounds."""

    def function(x, bound):
        tensors = [torch.full_like(x, 2.5), x]
        bounds = [torch.ones_like(bound), bound] if isinstance(bound, torch.Tensor) else bound
        return getattr(torch, f"_foreach_{cell.operator}")(tensors, bounds)[1]

    return function


def has_list(cell):
    """Lists neither broadcast nor promote."""
    alike = len({(a.shape, a.dtype, a.layout) for a in cell.tensor_args}) == 1
    return cell.operator in LISTS and alike


def add_forms(series):
    def claimed(cell):
        return cell.gradient == convention_of(cell, series) and one_kind(cell)

    makers = (function, False, claimed), (method("_"), True, both(claimed, has_in_place))
    makers += ((in_a_list, False, both(claimed, has_list)),)
    for name, (call, in_place, accepts) in zip(PARTS, makers):
        FORMS[name] = Form(torchs(call, in_place), accepts, in_place=in_place)


# ---- What PyTorch itself does otherwise ----------------------------------------------------------


def is_forward(context):
    return any(word in context for word in ("jvp", "dual", "tangent", "forward mode"))


def without_nan(cell):
    """In forward mode 0.5 stands for NaN, where PyTorch's tangent is no transpose."""
    if not is_forward(cell.context) or kind_of(cell) == "numbers":
        return cell
    plain = (
        replace(a, values=tuple(0.5 if v != v else v for v in a.values)) for a in cell.tensor_args
    )
    return replace(cell, args=tuple(cell.fill(plain)))


def is_of_2_13(cell, series):
    """Whether the formulas are those of 2.13, and no series has replaced them."""
    kept = not series or not series.covers(cell.operator, kind_of(cell))
    return RELEASE < (2, 14) and kept and kind_of(cell) == "tensors"


def has_scalar_of_another_dtype(cell):
    dtypes = {a.dtype for a in cell.tensor_args}
    return len(dtypes) > 1 and any(a.shape == () for a in cell.tensor_args)


# Which cells, and the error where only some of them fail.
OF_PYTORCH = {
    "up to 2.13, forward mode of Tensors is not the transpose of reverse mode": (
        lambda cell, series: is_forward(cell.context) and is_of_2_13(cell, series),
        "",
    ),
    "up to 2.13, a clamp of a smaller Tensor by two larger ones raises an error in backward": (
        lambda cell, series: cell.operator == "clamp" and is_of_2_13(cell, series),
        "doesn't match the broadcast shape",
    ),
    "a clamp by two Tensors compares pairs, which without dimensions promote to another dtype": (
        lambda cell, series: cell.operator == "clamp" and has_scalar_of_another_dtype(cell),
        "",
    ),
    "a graph of Inductor that is made for other numbers rounds them otherwise": (
        lambda cell, series: "Inductor" in cell.context and kind_of(cell) == "numbers",
        "value: ",
    ),
    "vmap has no rule for lists": (
        lambda cell, series: cell.form == "torch's own in a list",
        "Batching rule not implemented",
    ),
    "vmap does not write what is batched to what is not": (
        lambda cell, series: FORMS[cell.form].in_place and "vmap" in cell.context,
        "vmap: ",
    ),
    "the gradients of fmax and fmin are laid out like the incoming one": (
        lambda cell, series: cell.operator in ("fmax", "fmin"),
        "strides of a gradient",
    ),
}


def find_reason(cell, series, error=""):
    """Returns why a cell is left out or, if it failed, why its error is; or None."""
    if not error and (reason := waived(cell)):
        return reason
    for reason, (covers, text) in OF_PYTORCH.items():
        if bool(text) == bool(error) and text in str(error) and covers(cell, series):
            return reason
    return None


# ---- Running -------------------------------------------------------------------------------------


def draw_cells(context, form, part):
    """Returns a part of the calls, or that many of each operator; the same in every run."""
    order = random.Random(f"{context}, {form}")
    cells = (without_nan(replace(call, form=form, context=context)) for call in calls())
    cells = [cell for cell in cells if applies(cell)]
    if context in COMPILED:
        by_operator = defaultdict(list)
        for cell in cells:
            by_operator[cell.operator].append(cell)
        return [
            c for some in by_operator.values() for c in order.sample(some, min(part, len(some)))
        ]
    return order.sample(cells, round(part * len(cells)))


def run(series):
    """Returns what held, what was left out and why, and what was wrong."""
    held, reasons, wrong = Counter(), Counter(), []
    for context, about in CONTEXTS.items():
        for form, part in PARTS.items():
            if about.costly and (context not in COMPILED or form != "torch's own"):
                continue
            for cell in draw_cells(context, form, COMPILED.get(context, part)):
                if reason := find_reason(cell, series):
                    reasons[reason] += 1
                    continue
                try:
                    check(cell)
                    held[f"{cell.operator}, {kind_of(cell)}"] += 1
                except Exception as error:
                    if reason := find_reason(cell, series, error):
                        reasons[reason] += 1
                    else:
                        wrong.append([cell.operator, kind_of(cell), repr(cell), summarize(error)])
    contexts = len([c for c in CONTEXTS if not CONTEXTS[c].costly]) + len(COMPILED)
    return {"held": held, "contexts": contexts, "left out": reasons, "wrong": wrong}


def summarize(error):
    """Returns the beginning of an error; compilers wrap the error itself in a line of theirs."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def check_nodes():
    """Raises if an operator does not run the formulas of the library."""
    for operator in ARGUMENTS:
        args = [torch.zeros(1, requires_grad=True) for _ in ARGUMENTS[operator]]
        node = getattr(torch, operator)(*args).grad_fn.name()
        if not node.startswith("Proved"):
            raise RuntimeError(f"{operator} does not run the formulas of the library, but {node}")


def main(answer, library=None, convention=None, *scope):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if library:
        torch.ops.load_library(library)
        check_nodes()
    series = library and Series("", [], convention, frozenset(scope), "", [])
    add_forms(series)
    with open(answer, "w") as file:
        json.dump(run(series), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
