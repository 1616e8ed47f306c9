"""docs/with_pytorch.md, from what the matrix ran.

PYTHONPATH=test python -m matrix.report run      runs cells, writes docs/with_pytorch.json; with
                                                 CLAMPGRAD_PORTABLE=1 those of pins
PYTHONPATH=test python -m matrix.report write    writes the page from it, and from the records of
                                                 make fuzz, make mutants and make sanitize
"""

import argparse
import json
import random
import sys
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

import clampgrad
from matrix.levels import WORDS
from matrix.run import CONTEXTS, FORMS, applies, calls, check, waived
from matrix.waivers import PORTABLE

DOCS = Path(__file__).resolve().parents[2] / "docs"
JSON, PAGE = DOCS / "with_pytorch.json", DOCS / "with_pytorch.md"
FUZZ, MUTANTS = DOCS / "fuzz.json", DOCS.parent / "tools" / "mutants.json"

BLOCK = ("pinned function", "pinned method", "pinned method in place", "pinned foreach")
PROCESS = (
    "process, function",
    "process, method",
    "process, method in place",
    "process, foreach",
)
COLUMNS = {
    "function": ("function", "clamp_with_grad"),
    "in place": ("in place",),
    "`out=`": ("out",),
    "`torch.ops`": ("torch.ops", "torch.ops in place"),
    "`_mingrad`": ("mingrad", "mingrad in place"),
    "pin, a block": BLOCK,
    "of the process": PROCESS,
    "portable pin, a block": BLOCK,
    "of the process, partial": PROCESS,
    "module": (
        "module",
        "module in place",
        "nn.ReLU and kin",
        "nn.ReLU and kin in place",
    ),
}

OF_PORTABLE = ("portable pin, a block", "of the process, partial")
LEVELS = "torch.func: vjp, jvp and vmap, to three levels"

BY_HAND = """\
## Does it work with ...?

| with | what holds | test |
| --- | --- | --- |
| `torch.compile` | Yes: one graph serves all sizes, integer bounds may be symbolic, and a clamp is one kernel in forward and one in backward. | `test_compile.py`, `test_compile_training.py` |
| `torch.export`, to train on | Yes: the graph holds our operator and keeps its convention, saved and loaded as well. | `test_export_training.py` |
| `torch.export`, ONNX, AOTInductor, to run elsewhere | Yes: after `run_decompositions()` the graph has ATen operators alone (in ONNX, `Clip`) and needs no clampgrad. Trained on, it has PyTorch's own gradient. | `test_export.py`, `test_export_elsewhere.py` |
| TorchScript | Yes, traced or scripted, training too. The file needs the operators, from the package or from [libclampgrad](cpp.md). | `test_export_training.py` |
| DDP, FSDP2, DTensor | Yes: groups of 2 and 4 processes give what one process gives. clampgrad communicates nothing itself; `Partial` is reduced first, as by `torch.clamp`. | `test_distributed.py` |
| mixed precision | Yes: GradScaler, autocast, subnormal numbers, deterministic mode. | `test_precision.py` |
| `torch.func`, forward mode, double backward, hooks, checkpoints | Yes: [every form in every context](#every-form-in-every-context). | `matrix/test_matrix.py` |
| Tensor subclasses | Yes: wrappers (which see ATen operators), fake and meta tensors, parameters. | `test_subclass.py` |
| nested (jagged) tensors | Yes, also two of the same lengths, which PyTorch's own `maximum` cannot differentiate. | `test_layouts.py` |
| sparse, quantised, MKLDNN tensors | As PyTorch: the same result, or its error. | `test_layouts.py` |
| the profiler, anomaly mode | Yes: they name the operator; nodes have `_saved_` attributes. | `test_names.py` |
| several processes | Yes, forked or spawned; one interpreter per process (two are not supported). | `test_threads.py` |
| the older ONNX exporter (`dynamo=False`) | No: it knows no operators but PyTorch's own. | |
| `torch.jit.script` of `clampgrad.nn` | No: it cannot read the modules. Trace them, or script `clampgrad.clamp` and its relatives. | |

Where PyTorch raises an error, every form of clampgrad raises one of the same kind and leaves its input as it was
(`matrix/test_refused.py`). 10^5 calls keep no reference and leak no memory (`test_memory.py`). The kernels' tests run
under ASan and UBSan (`make sanitize`), those of the pin's state under TSan (`make races`). The matrix has not run under
sanitizers.
"""


def run(count, costly, seed):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start, order, rows = time.process_time(), random.Random(seed), []
    for context in CONTEXTS:
        for form in FORMS:
            if PORTABLE and not FORMS[form].pin:
                continue
            if FORMS[form].writes and not CONTEXTS[context].records_nothing:
                continue
            wanted = count if not CONTEXTS[context].costly else costly
            wanted = min(wanted, 1) if "Inductor" in context else wanted
            if not wanted:
                continue
            held, refusals, reasons = 0, 0, Counter()
            for call in order.sample(calls(), min(len(calls()), 20 * wanted)):
                cell = replace(call, form=form, context=context)
                if held + refusals == wanted:
                    break
                if not applies(cell):
                    continue
                if reason := waived(cell):
                    reasons[reason] += 1
                else:
                    try:
                        refusal = check(cell)
                    except Exception as e:
                        sys.exit(f'python -m matrix "{cell}"\n{type(e).__name__}: {e}')
                    held += not refusal
                    if refusal:
                        refusals += 1
                        reasons[refusal] += 1
            rows.append(
                {
                    "context": context,
                    "form": form,
                    "held": held,
                    "refused": refusals,
                    "waived": dict(reasons),
                }
            )
        print(f"{time.process_time() - start:6.0f} s  {context}", flush=True)
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
        "rows": rows,
    }
    write(json.loads(JSON.read_text()) | {clampgrad.implementation: found})


def write(records):
    """One row per line."""
    parts = []
    for implementation, found in records.items():
        rows = ",\n".join(json.dumps(row) for row in found["rows"])
        head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1)
        parts.append(f'"{implementation}": {head[:-2]},\n "rows": [\n{rows}\n]}}')
    JSON.write_text("{" + ",\n".join(parts) + "}\n")


def other_records():
    """What other commands last found, a sentence each."""
    fuzz, mutants = (json.loads(path.read_text()) for path in (FUZZ, MUTANTS))
    killed = f"{mutants['killed']} of {mutants['ran']}"
    left = mutants["listed"] - mutants["ran"]
    return (
        f"`make fuzz SECONDS=...` draws arguments that are in no list: {fuzz['cells']:,} cells in"
        f" {fuzz['seconds'] / 60:.0f} minutes (torch {fuzz['torch']}, seed {fuzz['seed']}), and nothing found."
        " `make mutants` breaks the rules, the front doors, the pin and the portable implementation, one"
        f" operator at a time: the tests noticed {killed}"
        + (f" (of {mutants['listed']} listed; {left} were not run to the end)." if left else ".")
    )


def page(records):
    found, portable = records["compiled"], records["portable"]
    every = [*found["rows"], *portable["rows"]]
    reasons = sorted({reason for r in every for reason in r["waived"]})
    contexts = list(
        dict.fromkeys(LEVELS if r["context"] in WORDS else r["context"] for r in found["rows"])
    )

    def shown(context, column):
        forms = COLUMNS[column]
        rows = [
            r
            for r in (portable if column in OF_PORTABLE else found)["rows"]
            if (r["context"] in WORDS if context == LEVELS else r["context"] == context)
            and r["form"] in forms
        ]
        held = sum(r["held"] for r in rows)
        notes = sorted({reasons.index(w) + 1 for r in rows for w in r["waived"]})
        marks = f"[{', '.join(map(str, notes))}]" if notes else ""  # [3][5] would be a link
        refusals = sum(r["refused"] for r in rows)
        counts = [str(held)] * bool(held) + [f"{refusals} refused"] * bool(refusals)
        return f"{', '.join(counts) or '·'} {marks}".strip()

    lines = [
        "# With the rest of PyTorch",
        "",
        "<!-- Written by test/matrix/report.py from with_pytorch.json; edit those. -->",
        "",
        BY_HAND,
        "## Every form in every context",
        "",
        "The tests draw from every combination of a form (a way to call an operator), a context of autograd, a kind of"
        " bounds and a convention. The result is compared with torch's own operator, and the gradient with a"
        " reference in plain torch that looks it up in [the table](../conventions.yaml), element by element.",
        "",
        f"<!-- generated from {JSON.name}, {FUZZ.name} and {MUTANTS.name} -->",
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
        "<!-- end -->",
        "",
        "The table says how many cells held, for each context and form. A dot means that there is no such call. A"
        " number in brackets means that some cells are left out, or refused where the table says so, for the reason"
        " below. A pin of the process holds around the whole context; under the portable implementation it has"
        " [partial reach](pin.md#partial-reach).",
        "",
        "| context | " + " | ".join(COLUMNS) + " |",
        "| --- |" + " --- |" * len(COLUMNS),
    ]
    for context in contexts:
        row = [shown(context, column) for column in COLUMNS]
        lines.append(f"| {context} | " + " | ".join(row) + " |")
    lines += ["", "Left out or refused:", ""]
    lines += [f"{n}. {reason}" for n, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--cells", type=int, default=12, help="of each form in each context")
    parser.add_argument("--costly", type=int, default=0, help="where a compiler runs: seconds each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "run":
        run(given.cells, given.costly, given.seed)
    PAGE.write_text(page(json.loads(JSON.read_text())))
