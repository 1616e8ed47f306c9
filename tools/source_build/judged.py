"""Gradients held to the claim of a series: python judged.py OUT GRADIENTS STOCK SERIES RELEASE.

Without a series, they must be those of stock; and those of stock the ones that the table gives the release.
"""

import json
import re
import sys
from pathlib import Path

import checkout  # noqa: F401
from tools.series import SCRIPT, files_of, named
from tools.verify.held import against_table, changes, held, table

# What `verify` does not count: compiled autograd, which it cannot see in a wheel, and Inductor, of which it
# asks only the patched side.
NOT_COUNTED = ("compiled autograd", "Inductor")
RAN = ("nodes", "saved", "called")  # besides the gradients, what there is of them


def main() -> None:
    out, own, stock, series, release = sys.argv[1:]
    all_of_it, all_before = (json.loads(Path(p).read_text()) for p in (own, stock))
    mine, before = (found["gradients"] for found in (all_of_it, all_before))
    changed = changes(before, mine)
    failures = list(changed)
    if series:
        failures = judged(mine, before, series, changed) + ran(all_of_it, series)
    elif own == stock:
        failures = of_release(mine, release)
    elif others := [key for key in RAN if all_of_it[key] != all_before[key]]:
        failures.append(f"other than on stock: {', '.join(others)}")
    counts = {
        line.rpartition(": ")[0]: int(line.rpartition(": ")[2].split()[0]) for line in changed
    }
    in_wheels = {key: n for key, n in counts.items() if not key.endswith(NOT_COUNTED)}
    result = {
        "points": sum(map(len, mine.values())),
        "points that changed": sum(counts.values()),
        "as verify counts them": sum(in_wheels.values()),
        "changed": changed,
        "numbers": conventions(mine, "numbers"),
        "tensors": conventions(mine, "tensors"),
        "failures": failures,
    }
    Path(out).write_text(json.dumps(result, indent=1))


def conventions(found: dict, kind: str) -> list[str]:
    """The conventions that the gradients in eager mode have for one kind of bounds. For numbers, several agree."""
    rows = {key: rows for key, rows in found.items() if key.endswith(f", {kind}, eager")}
    return [name for name in table().EXACT if not against_table(rows, name, set())]


def of_release(mine: dict, release: str) -> list[str]:
    """At a NaN, releases of one convention differ, and TorchScript has rules of its own: neither is asked."""
    own = {name: c for name, c in table().TABLE["aliases"].items() if name.startswith("torch_")}
    since = {tuple(map(int, name.split("_")[1:])): convention for name, convention in own.items()}
    number = tuple(map(int, release.split(".")[:2]))
    convention = since[min((r for r in since if r >= number), default=max(since))]
    asked = {
        key: [
            row
            for row in rows
            if not any(v != v for v in row[: 3 if key.startswith("clamp,") else 2])
        ]
        for key, rows in split(mine, ", TorchScript")[1].items()
    }
    return against_table(asked, convention, set())


def ran(found: dict, series: str) -> list[str]:
    """What the nodes keep, where the series says that; and whether the operators run that it adds."""
    claim, patches = named(series).claim, named(series).patches
    added = {n for p in patches for n in re.findall(r"^\+- func: ([\w.]+)\(", p.read_text(), re.M)}
    return [
        f"{form} saves {', '.join(saved)}, not {', '.join(claim.saves)}"
        for form, saved in found["saved"].items()
        if claim.saves and claim.covers(*form.split(", ")[:2]) and saved != list(claim.saves)
    ] + [f"nothing calls {name}, which it adds" for name in sorted(added - {*found["called"]})]


def judged(mine: dict, before: dict, series: str, changed: list[str]) -> list[str]:
    claim = named(series).claim
    if claim.unchanged:
        return changed
    touched = {", ".join(line.split(", ")[:2]) for line in changed}
    scripted = SCRIPT in files_of(*named(series).patches)
    own, others = ({}, {}) if scripted else split(mine, ", TorchScript")
    failures = held(
        others or mine, split(before, ", TorchScript")[1] if own else before, claim, touched
    )
    if own:  # a series that leaves TorchScript alone leaves its gradients alone
        failures += changes(split(before, ", TorchScript")[0], own)
    return failures if changed else [*failures, "no gradient changed"]


def split(found: dict, ending: str) -> tuple[dict, dict]:
    inside = {key: rows for key, rows in found.items() if key.endswith(ending)}
    return inside, {key: rows for key, rows in found.items() if key not in inside}


if __name__ == "__main__":
    main()
