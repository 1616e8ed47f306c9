"""The tables of docs/upstream/: what a build of PyTorch and `verify` found."""

import json
from pathlib import Path

import records
from records import code, markdown

ROOT = Path(__file__).parent.parent


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def called(state):
    return state if state in ("stock", "undone") else code(state)


def source_build():
    """What was built, and which gradients it has."""
    head = ["", "build", "files compiled", "`clamp(x, 0, 1)` at 0", "numbers", "Tensors"]
    rows = [[*head, "points that differ from stock", "failures"]]
    found = records.read("source-build")
    for r in found["rows"]:
        at_bound = f"{r['clamp(x, 0, 1) at 0']:g}"
        row = [called(r["state"]), minutes(r["seconds"]), r["files compiled"], at_bound]
        row += [", ".join(r[kind]) or "of none" for kind in ("numbers", "tensors")]
        differ = f"{r['points that changed']:,} of {r['points']:,}"
        rows.append([*row, f"{differ} ({r['as verify counts them']:,})", r["failures"]])
    flags = ", ".join(f"`{key}={value}`" for key, value in found["flags"].items())
    note = (
        f"PyTorch {found['release']}, {found['jobs']} jobs on {found['cores']} cores of {found['processor']}, Python "
        f"{found['python']}; {found['seconds'] / 60:.0f} minutes in all. `--minimal`, with {flags}. {found['note']}"
    )
    return markdown(*rows, right=range(1, 8)) + "\n\n" + note


def source_build_tests():
    """Upstream's tests in each state."""
    states = records.read("source-build")["rows"]
    rows = [["", *(called(r["state"]) for r in states)]]
    for file in states[0]["tests"]:
        counts = (r["tests"][file].items() for r in states)
        rows.append([code(file), *(", ".join(f"{n} {how}" for how, n in of) for of in counts)])
    return markdown(*rows)


def verified():
    """What `verify` found, release by release: docs/verified.json."""
    rows = [["torch", "series", "gradients", "points that changed", "OpInfo samples"]]
    for r in json.loads((ROOT / "docs/verified.json").read_text()):
        convention = "unchanged" if r["unchanged"] else r["convention"]
        numbers = f"{r['points that changed']:,}", f"{r['opinfo samples']:,}"
        rows.append([r["torch"], code(r["series"]), convention, *numbers])
    return markdown(*rows, right=(3, 4))


TABLES = {f.__name__: f for f in (source_build, source_build_tests, verified)}
