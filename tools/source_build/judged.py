"""Gradients held to the claim of a series: python judged.py OUT GRADIENTS STOCK SERIES.

Without a series, they must be those of stock.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "clampgrad"))

from patches.apply import files_of  # noqa: E402
from patches.series import Claim, named  # noqa: E402
from patches.tree import SCRIPT  # noqa: E402
from patches.verify import checks  # noqa: E402, F401  puts the table's reader on the path
from patches.verify.held import changes, convention_of, held  # noqa: E402

# Modes that `verify` has no way to see in a wheel.
ONLY_BUILT = ("compiled autograd",)


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
    seen = {key: n for key, n in counts.items() if not key.endswith(ONLY_BUILT)}
    result = {
        "points": sum(map(len, mine.values())),
        "points that changed": sum(counts.values()),
        "of these, visible in a wheel": sum(seen.values()),
        "changed": changed,
        "numbers": convention_of(of(mine, "numbers"), Claim()),
        "tensors": convention_of(of(mine, "tensors"), Claim()),
        "failures": failures,
    }
    Path(out).write_text(json.dumps(result, indent=1))


def of(found: dict, kind: str) -> dict:
    """Reverse mode in eager mode, of one kind of bounds."""
    return {key: rows for key, rows in found.items() if key.endswith(f", {kind}, eager")}


def judged(mine: dict, before: dict, series: str, changed: list[str]) -> list[str]:
    claim = named(series).claim
    if claim.unchanged:
        return changed
    touched = {", ".join(line.split(", ")[:2]) for line in changed}
    scripted = any(SCRIPT in files_of(patch) for patch in named(series).patches)
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
