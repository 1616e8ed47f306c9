"""The tables of docs/support.md, from what the matrix ran.

`python -m lab.matrix_page` runs cells and writes records/matrix.jsonl; with CLAMPGRAD_PORTABLE=1,
those of pins.
"""

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from dataclasses import replace

import torch

import clampgrad
import records
from records import table
from testing.matrix.levels import WORDS
from testing.matrix.run import CONTEXTS, FORMS, applies, calls, check, waived
from testing.matrix.waivers import PORTABLE

BLOCK = [name for name, form in FORMS.items() if form.pin and not form.process]
PROCESS = [name for name, form in FORMS.items() if form.process]
# {what a column shows: (the implementation, its forms)}
COLUMNS = {
    "function": ("compiled", ["function", "function, overlapping", "clamp_with_grad"]),
    "in place": ("compiled", ["in place", "in place, overlapping"]),
    "`out=`": ("compiled", ["out"]),
    "`torch.ops`": ("compiled", ["torch.ops", "torch.ops in place"]),
    "`_mingrad`": ("compiled", ["mingrad", "mingrad in place"]),
    "pin, a block": ("compiled", BLOCK),
    "of the process": ("compiled", PROCESS),
    "portable pin, a block": ("portable", BLOCK),
    "portable pin, of the process": ("portable", PROCESS),
    "module": ("compiled", [name for name, form in FORMS.items() if form.module]),
}
LEVELS = "torch.func: vjp, jvp and vmap, to three levels"


def run(count, costly, seed):
    """A row for each context."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start, order, rows = time.process_time(), random.Random(seed), []
    for context, about in CONTEXTS.items():
        cell_count = costly if about.costly else count
        cell_count = min(cell_count, 1) if "Inductor" in context else cell_count
        forms = {
            name: run_cells(context, name, cell_count, order)
            for name, form in FORMS.items()
            if cell_count
            and (form.pin or not PORTABLE)
            and (about.records_nothing or not form.writes)
        }
        row = {"implementation": clampgrad.implementation, "context": context, "forms": forms}
        rows += [row] if forms else []
    cells = [cell for row in rows for cell in row["forms"].values()]
    summary = {
        "torch": torch.__version__.split("+")[0],
        "commit": records.commit(),
        "seconds": round(time.process_time() - start),
        "seed": seed,
        "calls": len(calls()),
        "contexts": len(CONTEXTS),
        "forms": len({form for row in rows for form in row["forms"]}),
        "held": sum(cell["held"] for cell in cells),
        "refused": sum(cell.get("refused", 0) for cell in cells),
        "waived": sum(sum(cell.get("waived", {}).values()) for cell in cells),
    }
    before = records.read("matrix")
    others = [r for r in before.pop("rows") if r["implementation"] != clampgrad.implementation]
    records.write(
        "matrix", others + rows, commit=None, **{**before, clampgrad.implementation: summary}
    )


def run_cells(context, form, cell_count, order):
    """How many cells held and how many were refused, `cell_count` together;
    and why which were left out."""
    held, refused, reasons = 0, 0, Counter()
    for call in order.sample(calls(), min(len(calls()), 20 * cell_count)):
        cell = replace(call, form=form, context=context)
        if held + refused == cell_count:
            break
        if not applies(cell):
            continue
        reason = waived(cell)
        if not reason:
            try:
                reason = check(cell)
            except Exception as e:
                sys.exit(f'python -m testing.matrix "{cell}"\n{type(e).__name__}: {e}')
            held += not reason
            refused += bool(reason)
        reasons.update([reason] if reason else [])
    more = {"refused": refused, "waived": dict(reasons)}
    return {"held": held, **{what: number for what, number in more.items() if number}}


# ---- The tables ----------------------------------------------------------------------------------


@table()
def matrix_summary():
    runs, fuzz = records.read("matrix"), records.read("fuzz")
    compiled, portable = runs["compiled"], runs["portable"]
    yield (
        f"On torch {compiled['torch']}, {compiled['held']:,} cells ran in {compiled['seconds']} s of one "
        "core, and all hold: "
        f"{compiled['held'] / (compiled['calls'] * compiled['forms'] * compiled['contexts']):.2%} of "
        f"{compiled['calls']:,} calls x {compiled['forms']} forms x {compiled['contexts']} contexts. "
        f"{compiled['refused']} more, of pins, were refused. Each run of the tests draws other cells. "
        "It also draws some under compilers (torch.compile with and without Inductor, compiled "
        "autograd), which take seconds each."
    )
    yield (
        f"Under the portable pin, {portable['held']:,} cells of {portable['forms']} forms ran on "
        f"torch {portable['torch']}, and all hold; {portable['refused']} more were refused."
    )
    drawn = " and ".join(
        f"{row['cells']:,} cells in {row['seconds'] / 60:.0f} minutes ({row['implementation']}, "
        f"torch {row['torch']}, seed {row['seed']})"
        for row in fuzz["rows"]
    )
    mutants = records.read("mutants")
    made, killed = (sum(r[what] for r in mutants["rows"]) for what in ("made", "killed"))
    ran = killed + sum(len(r["survived"]) for r in mutants["rows"])
    yield (
        f"`nox -s fuzz` draws arguments that are in no list: {drawn}, and nothing found. "
        f"`nox -s mutants` breaks the compiled library by rule, in {made} places, one at a time. The "
        f"tests noticed {killed} of the {ran} that ran (at {mutants['commit']})."
    )


@table()
def matrix():
    rows = records.read("matrix")["rows"]
    every = [cell for row in rows for cell in row["forms"].values()]
    reasons = sorted({reason for cell in every for reason in cell.get("waived", {})})
    contexts = {}  # {what the page calls a context: {implementation: the forms of its rows}}
    for row in rows:
        name = LEVELS if row["context"] in WORDS else row["context"]
        contexts.setdefault(name, {}).setdefault(row["implementation"], []).append(row["forms"])

    def make_cell(context, implementation, forms):
        some = [
            of[form]
            for of in contexts[context].get(implementation, [])
            for form in forms
            if form in of
        ]
        held, refused = (sum(cell.get(kind, 0) for cell in some) for kind in ("held", "refused"))
        notes = sorted({reasons.index(w) + 1 for cell in some for w in cell.get("waived", {})})
        marks = f"[{', '.join(map(str, notes))}]" if notes else ""  # [3][5] would be a link
        counts = [str(held)] * bool(held) + [f"{refused} refused"] * bool(refused)
        return f"{', '.join(counts) or '·'} {marks}".strip()

    yield "context", *COLUMNS
    for context in contexts:
        yield context, *(make_cell(context, *column) for column in COLUMNS.values())
    yield "Left out or refused:"
    yield "\n".join(f"{n}. {reason}" for n, reason in enumerate(reasons, 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=12, help="of each form in each context")
    parser.add_argument("--costly", type=int, default=0, help="where a compiler runs: seconds each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    run(given.cells, given.costly, given.seed)
