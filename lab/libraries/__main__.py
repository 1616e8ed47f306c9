"""A stock model beside a converted one, in other people's libraries.

    python -m lab.libraries [--before FILE] [--out FILE] [NAME ...]

Each case of cases.py runs in a process of its own: with the stock model, then with `clampgrad.nn.convert`, by default
and with `example_inputs`, and with a convention that changes gradients, for one kind of module at a time. What the library makes
of it must be the same to the bit, or, for the convention, say that it is not in it. Exits with 1 where that does not hold.
`--before` is a file of the same program, run with an older release on PYTHONPATH: both become one record.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils._pytree import tree_flatten_with_path

import clampgrad
import records
from lab.libraries.cases import CASES

NAMED = "straight_through"  # its gradient differs from torch's wherever there is one
KINDS = nn.ReLU, nn.ReLU6, nn.Hardtanh
AS_STOCK, ARRIVES, LOST = "as stock", "arrives", "silent: lost"


def stock(model, x):
    return model


def converted(model, x):
    return clampgrad.nn.convert(model)


def by_example(model, x):
    """In training mode, in which more is kept."""
    mode = model.training
    clampgrad.nn.convert(model.train(), example_inputs=(x,))
    return model.train(mode)


def named(kind):
    def change(model, x):
        return clampgrad.nn.convert(model, NAMED, filter_fn=lambda module, _: type(module) is kind)

    return change


# ---- Judging -------------------------------------------------------------------------------------


def first_difference(a, b):
    """Between two results, or None."""
    (a, structure), (b, other) = tree_flatten_with_path(a), tree_flatten_with_path(b)
    if structure != other:
        return "another structure"
    for (_, x), (_, y) in zip(a, b):
        if isinstance(x, torch.Tensor):
            x, y = x.detach(), y.detach()
            if x.shape != y.shape or x.dtype != y.dtype:
                return "other sizes or dtypes"
            if not torch.equal(x, y):
                return f"by {(x.double() - y.double()).abs().max():.2g}"
        elif x != y:
            return f"{str(x)[:60]} is {str(y)[:60]}"
    return None


def ran(case, change):
    """What a case returns and which of its warnings are about this package, or the error."""
    torch.manual_seed(0)
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return case.function(change), [str(w.message) for w in said], None
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            return None, [], f"{type(error).__name__}: {first}"


def judge(case, change, expected, usual):
    result, said, error = ran(case, change)
    said = [text for text in said if text not in usual]
    if error:
        return f"error: {error}"
    difference = first_difference(expected, result)
    ours = [text for text in said if "clampgrad" in text or "gradient" in text]
    if change in (converted, by_example):
        return f"silent: differs, {difference}" if difference else AS_STOCK
    if ours:
        return f"warning: {ours[0]}"
    return ARRIVES if difference else LOST if case.gradients else AS_STOCK


def verdicts(name):
    case = CASES[name]
    expected, usual, error = ran(case, stock)
    if error:
        return {"stock": error}
    found = {"convert": judge(case, converted, expected, usual)}
    try:
        clampgrad.nn.convert(nn.ReLU6(), example_inputs=torch.ones(1))
    except TypeError:
        found["example"] = ""  # an older release
    else:
        found["example"] = judge(case, by_example, expected, usual)
    for kind in KINDS:
        found[kind.__name__] = judge(case, named(kind), expected, usual)
    return found


# ---- Recording -----------------------------------------------------------------------------------


def process(name):
    command = [sys.executable, "-m", "lab.libraries", "--case", name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
    lines = ended.stdout.splitlines()
    if ended.returncode or not lines:
        return {"stock": f"exit code {ended.returncode}: {ended.stderr[-300:]}"}
    return json.loads(lines[-1])


def versions():
    there = {}
    for case in CASES.values():
        try:
            there[case.library] = importlib.metadata.version(case.library)
        except importlib.metadata.PackageNotFoundError:
            continue  # a part of torch or Python, or not installed
    return there


def wrong(row):
    texts = [text for key, text in row.items() if key in ("stock", "convert", "example")]
    return any(text not in (AS_STOCK, "") for text in texts) or LOST in row.values()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--before")
    parser.add_argument("--out")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(verdicts(arguments.case)))
        sys.exit()
    names = arguments.names or list(CASES)
    before = {}
    if arguments.before:
        before = {row["name"]: row for row in records.read(arguments.before)["rows"]}
    rows = []
    for name in names:
        case = CASES[name]
        found = process(name)
        rows.append({"name": name, "library": case.library, "case": case.words, **found})
        print(name, found, file=sys.stderr)
    if arguments.out:
        for row in rows:
            if row["name"] in before:
                row["before"] = before[row["name"]]["convert"]
        records.write(arguments.out, rows, **records.here(), libraries=versions())
    sys.exit(any(map(wrong, rows)))
