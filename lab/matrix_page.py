"""docs/with_pytorch.md, from what the matrix ran.

python -m lab.matrix_page run      runs cells, writes records/matrix.jsonl; with
                                                 CLAMPGRAD_PORTABLE=1 those of pins
python -m lab.matrix_page write    fills the page from it, and from the records of
                                                 make fuzz and make mutants
"""

import argparse
import json
import random
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

import clampgrad
import records
from matrix.levels import WORDS
from matrix.run import CONTEXTS, FORMS, applies, calls, check, waived
from matrix.waivers import PORTABLE

ROOT = Path(__file__).resolve().parents[1]
PAGE, MUTANTS = ROOT / "docs/with_pytorch.md", ROOT / "lab/mutants.json"

BLOCK = [name for name, form in FORMS.items() if form.pin and not form.process]
PROCESS = [name for name, form in FORMS.items() if form.process]
COLUMNS = {
    "function": ["function", "clamp_with_grad"],
    "in place": ["in place", "in place, overlapping"],
    "`out=`": ["out"],
    "`torch.ops`": ["torch.ops", "torch.ops in place"],
    "`_mingrad`": ["mingrad", "mingrad in place"],
    "pin, a block": BLOCK,
    "of the process": PROCESS,
    "portable pin, a block": BLOCK,
    "portable pin, of the process": PROCESS,
    "module": [name for name, form in FORMS.items() if form.module],
}

OF_PORTABLE = ("portable pin, a block", "portable pin, of the process")
LEVELS = "torch.func: vjp, jvp and vmap, to three levels"


def run(count, costly, seed):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start, order, rows = time.process_time(), random.Random(seed), []
    for context, form in product(CONTEXTS, FORMS):
        if PORTABLE and not FORMS[form].pin:
            continue
        if FORMS[form].writes and not CONTEXTS[context].records_nothing:
            continue
        wanted = costly if CONTEXTS[context].costly else count
        wanted = min(wanted, 1) if "Inductor" in context else wanted
        if wanted:
            rows.append({"context": context, "form": form, **ran(context, form, wanted, order)})
    found = {
        "torch": torch.__version__.split("+")[0],
        "seconds": round(time.process_time() - start),
        "seed": seed,
        "calls": len(calls()),
        "contexts": len(CONTEXTS),
        "forms": len({r["form"] for r in rows}),
        "held": sum(r["held"] for r in rows),
        "refused": sum(r["refused"] for r in rows),
        "waived": sum(sum(r["waived"].values()) for r in rows),
    }
    write(read() | {clampgrad.implementation: {**found, "rows": rows}})


def ran(context, form, wanted, order):
    """How many cells held and how many were refused, `wanted` together; and why which were left out."""
    held, refusals, reasons = 0, 0, Counter()
    for call in order.sample(calls(), min(len(calls()), 20 * wanted)):
        cell = replace(call, form=form, context=context)
        if held + refusals == wanted:
            break
        if not applies(cell):
            continue
        reason = waived(cell)
        if not reason:
            try:
                reason = check(cell)
            except Exception as e:
                sys.exit(f'python -m matrix "{cell}"\n{type(e).__name__}: {e}')
            held += not reason
            refusals += bool(reason)
        reasons.update([reason] if reason else [])
    return {"held": held, "refused": refusals, "waived": dict(reasons)}


def read():
    """{implementation: what is known of the run, and a row for each form in each context}."""
    found = records.read("matrix")
    rows = {name: [] for name in found if name != "rows"}
    for case in found["rows"]:
        for form, held in case["held"].items():
            refused, waived = case.get("refused", {}), case.get("waived", {})
            row = {"context": case["context"], "form": form, "held": held}
            row |= {"refused": refused.get(form, 0), "waived": waived.get(form, {})}
            rows[case["implementation"]].append(row)
    return {name: {**found[name], "rows": of} for name, of in rows.items()}


def write(runs):
    """A context is a case."""
    cases = {}
    for name, run in runs.items():
        for row in run["rows"]:
            new = {"implementation": name, "context": row["context"], "held": {}}
            case = cases.setdefault((name, row["context"]), new)
            case["held"][row["form"]] = row["held"]
            for what in ("refused", "waived"):
                if row[what]:
                    case.setdefault(what, {})[row["form"]] = row[what]
    header = {name: {k: v for k, v in run.items() if k != "rows"} for name, run in runs.items()}
    records.write("matrix", cases.values(), **header)


def other_records():
    """What other commands last found, a sentence each."""
    fuzz, mutants = records.read("fuzz"), json.loads(MUTANTS.read_text())
    killed = f"{mutants['killed']} of {mutants['ran']}"
    left = mutants["listed"] - mutants["ran"]
    return (
        f"`make fuzz SECONDS=...` draws arguments that are in no list: {fuzz['cells']:,} cells in"
        f" {fuzz['seconds'] / 60:.0f} minutes (torch {fuzz['torch']}, seed {fuzz['seed']}), and nothing found."
        " `make mutants` breaks the rules, the front doors, the pin and the portable implementation, one"
        f" operator at a time: the tests noticed {killed}"
        + (f" (of {mutants['listed']} listed; {left} were not run to the end)." if left else ".")
    )


def summary(runs):
    found, portable = runs["compiled"], runs["portable"]
    return [
        f"On torch {found['torch']}, {found['held']:,} cells ran in {found['seconds']} s of one core, and all hold:"
        f" {found['held'] / (found['calls'] * found['forms'] * found['contexts']):.2%} of {found['calls']:,} calls x"
        f" {found['forms']} forms x {found['contexts']} contexts. {found['refused']} more, of pins, were refused. Each run"
        " of the tests draws other cells. It also draws some under compilers (torch.compile with and without Inductor,"
        " compiled autograd), which take seconds each.",
        "",
        f"Under the portable pin, {portable['held']:,} cells ran on torch {portable['torch']}, of"
        f" {portable['forms']} forms; {portable['refused']} more were refused, and"
        " the rest hold.",
        "",
        other_records(),
    ]


def table(runs):
    rows = {name: found["rows"] for name, found in runs.items()}
    reasons = sorted({reason for r in sum(rows.values(), []) for reason in r["waived"]})

    def context_of(row):
        return LEVELS if row["context"] in WORDS else row["context"]

    def shown(context, column):
        of = rows["portable" if column in OF_PORTABLE else "compiled"]
        some = [r for r in of if context_of(r) == context and r["form"] in COLUMNS[column]]
        held, refusals = (sum(r[kind] for r in some) for kind in ("held", "refused"))
        notes = sorted({reasons.index(w) + 1 for r in some for w in r["waived"]})
        marks = f"[{', '.join(map(str, notes))}]" if notes else ""  # [3][5] would be a link
        counts = [str(held)] * bool(held) + [f"{refusals} refused"] * bool(refusals)
        return f"{', '.join(counts) or '·'} {marks}".strip()

    lines = [["context", *COLUMNS]]
    for context in dict.fromkeys(map(context_of, rows["compiled"])):
        lines.append([context, *(shown(context, column) for column in COLUMNS)])
    return [records.markdown(*lines), "", "Left out or refused:", ""] + [
        f"{n}. {reason}" for n, reason in enumerate(reasons, 1)
    ]


def page(runs):
    """The page, with what is generated anew."""
    blocks = iter([summary(runs), table(runs)])
    block = re.compile("(<!-- generated .*? -->\n).*?(<!-- end -->)", flags=re.DOTALL)
    return block.sub(lambda m: m[1] + "\n".join(next(blocks)) + "\n" + m[2], PAGE.read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--cells", type=int, default=12, help="of each form in each context")
    parser.add_argument("--costly", type=int, default=0, help="where a compiler runs: seconds each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "run":
        run(given.cells, given.costly, given.seed)
    PAGE.write_text(page(read()))
