"""Gradients held to the claim of a series: python judged.py OUT GRADIENTS STOCK SERIES.

Without a series, they must be those of stock.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.verify import SCRIPT, files_of, named  # noqa: E402
from tools.verify.held import against_table, changes, held, table  # noqa: E402

# What `verify` does not count: compiled autograd, which it cannot see in a wheel, and Inductor, of which it
# asks only the patched side.
NOT_COUNTED = ("compiled autograd", "Inductor")


def main() -> None:
    out, own, stock, series = sys.argv[1:]
    mine, before = (json.loads(Path(p).read_text())["gradients"] for p in (own, stock))
    changed = changes(before, mine)
    failures = list(changed)
    if series:
        failures = judged(mine, before, series, changed)
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
