"""The tables of docs/migration.md about what changed beside the clamp family, or through it."""

import itertools
import json

import records
from clampgrad._contract.changes import CHANGES, COMPARED
from lab.changes.reproducers import EXAMPLES
from records import code, table

RESULTS = {row["id"]: row for row in records.read("changes")["rows"]}
PINNED = {"restored": "as 2.13", "": "no effect", "as since": "as 2.14, on every release"}


def name_calls(change):
    """The functions that changed, each once: methods and in-place forms are left out."""
    names = [name_function(call) for call in change.calls]
    plain = [name for name in names if name.rstrip("_") == name or name.rstrip("_") not in names]
    return ", ".join(dict.fromkeys(map(code, plain)))


def name_function(call):
    """`quantile` of torch.Tensor.quantile, `Muon.step` of torch.optim.Muon.step."""
    *path, name = call.split(".")
    return f"{path[-1]}.{name}" if path[-1][0].isupper() and path[-1] != "Tensor" else name


def describe_change(change):
    calls = name_calls(change)
    return f"{calls}: {change.what}" if calls else change.what


def changes_between(first, second):
    rows = (row for row in CHANGES.values() if row.is_between([first, second]))
    return sorted(rows, key=lambda row: (row.pin != "restored", len(describe_change(row))))


@table()
def changes():
    """What changed in silence, step by step, the newest first; then what raises."""
    for first, second in reversed([*itertools.pairwise(COMPARED)]):
        rows = changes_between(first, second)
        yield f"**From {first} to {second}**"
        yield "what changed", "where", "if you pin `inclusive`"
        for row in rows:
            if row.kind == "silent":
                yield describe_change(row), row.condition or "always", PINNED[row.pin]
        for kind, text in {
            "error before": f"An error in {first}, and none in {second}",
            "error since": f"An error in {second}",
        }.items():
            if names := [describe_change(row) for row in rows if row.kind == kind]:
                yield f"{text}: {'; '.join(names)}."


@table()
def changes_in_examples():
    yield "since", "example", "before", "since then", "upstream"
    for name, change in CHANGES.items():
        result = RESULTS[name]
        pull = change.upstream
        link = f"[{pull}](https://github.com/pytorch/pytorch/pull/{pull})" if pull else ""
        since = f"{change.since} alone" if change.until else change.since
        sides = show_results(result["before"], result["since"])
        yield since, EXAMPLES[name], *sides, link


@table(left=2)
def changes_compared():
    yield "from", "to", "cases", "equal to the bit", "equal but for rounding", "different"
    for pair in records.read("changes")["pairs"]:
        counts = (f"{pair[key]:,}" for key in ("cases", "equal", "rounding", "differ"))
        yield pair["first"], pair["second"], *counts


def show_results(before, since):
    """Both as texts, with as few digits as tell them apart."""
    for digits in range(3, 9):
        texts = [show_result(result, digits) for result in (before, since)]
        if texts[0] != texts[1]:
            break
    return texts


def show_result(result, digits):
    if isinstance(result, str):
        return code(result)
    texts = [
        f"{v + 0.0:.{digits}g}" if isinstance(v, float) else json.dumps(v)  # no sign of a zero
        for v in result
    ]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
