"""records/changes.jsonl: what each reproducer returns before its change and since, and how many
cases each pair of releases has.

python -m lab.changes record                the results of the installed torch: run it on each
python -m lab.changes compare A B --record   the counts of a comparison
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import torch

import records
from clampgrad._contract.changes import CHANGES, minor, number
from lab.changes.reproducers import FIRST, REPRODUCERS

Result = Any  # numbers, or the type of an error


def measure_result(reproduce: Callable[[], torch.Tensor]) -> Result:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            y = reproduce().detach()
        except Exception as error:
            return type(error).__name__
    y = y.double() if y.dtype.is_floating_point else y
    return [float(f"{v:.8g}") if isinstance(v, float) else v for v in y.flatten().tolist()]


def side_of(identifier: str, release: str) -> str:
    return "since" if CHANGES[identifier].has(release) else "before"


def has_what_is_called(identifier: str, release: str) -> bool:
    return number(release) >= number(FIRST[identifier])


def record_results() -> None:
    record, release = read_record(), minor(torch.__version__)
    by_id = {row["id"]: row for row in record.pop("rows")}
    for identifier, reproduce in REPRODUCERS.items():
        row = by_id.setdefault(identifier, {"id": identifier})
        if has_what_is_called(identifier, release):
            row[side_of(identifier, release)] = measure_result(reproduce)
    rows = [by_id[identifier] for identifier in CHANGES]
    records.write("changes", rows, digits=None, commit=None, **record)


def record_counts(counts: dict[str, Any]) -> None:
    """Those of a comparison, with the two releases as "first" and "second"."""
    record = read_record()
    rows, pairs = record.pop("rows"), record.get("pairs", [])
    key = operator.itemgetter("first", "second")
    counts |= {"commit": records.commit()}
    pairs = sorted([*(p for p in pairs if key(p) != key(counts)), counts], key=key)
    records.write("changes", rows, digits=None, commit=None, **record | {"pairs": pairs})


def read_record() -> dict:
    return records.read("changes") if records.path("changes").exists() else {"rows": []}
