"""The tables of docs/upstream/: what a build of PyTorch and `verify` found."""

import json
import re
import statistics
from pathlib import Path

from records import code, markdown

ROOT = Path(__file__).parent.parent
SOURCE_BUILD = json.loads((ROOT / "docs/source_build.json").read_text())


def states():
    """(state as it is called in a table, its steps)."""
    called = {"stock": "stock", "undone": "undone"}
    for name, steps in SOURCE_BUILD["states"].items():
        yield called.get(name, code(name)), steps


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def source_build():
    """What was built, and which gradients it has."""
    head = ["", "build", "files compiled", "`clamp(x, 0, 1)` at 0", "numbers", "Tensors"]
    rows = [[*head, "points that differ from stock", "failures"]]
    proved = SOURCE_BUILD["proved"].values()
    for (name, steps), proofs in zip(states(), proved, strict=True):
        build, found = steps["build"], steps["gradients"]
        at_bound = steps["package"]["clamp(x, 0, 1) at 0"]
        row = [name, minutes(build["seconds"]), build["files"], f"{at_bound:g}"]
        row += [", ".join(found[kind]) or "of none" for kind in ("numbers", "tensors")]
        differ = f"{found['points that changed']:,} of {found['points']:,}"
        differ += f" ({found['as verify counts them']:,})"
        failures = sum(len(proof) for proof in proofs.values() if not isinstance(proof, str))
        rows.append([*row, differ, failures])
    tree, machine, probe = (SOURCE_BUILD[key] for key in ("tree", "machine", "probe"))
    total = sum(s["seconds"] for _, steps in states() for s in steps.values())
    flags = [f"`{k}={v}`" for k, v in SOURCE_BUILD["flags"].items() if not is_usual(k, v)]
    whole = SOURCE_BUILD["from nothing"] and SOURCE_BUILD["starts"] == 1
    note = (
        f"PyTorch {tree['release']}, {probe['jobs']} jobs on {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}; {total / 60:.0f} minutes in all. "
        f"`--minimal`, with {', '.join(flags)}. "
        f"{'From a checkout without a build, in one piece. ' if whole else ''}{SOURCE_BUILD['note']}"
    )
    return markdown(*rows, right=range(1, 8)) + "\n\n" + note.strip()


def proposals_built():
    """What PyTorch's own build and tests said of the proposals."""
    found = json.loads((ROOT / "docs/proposals_built.json").read_text())
    head = ["proposal", "files compiled", "points that differ from stock", "failures"]
    rows = [[*head, "results of upstream's tests that differ", "the proposal's own tests"]]
    for name, built in found["proposals"].items():
        judged, files = built["gradients"], built["tests"]
        differences = [d for file in files.values() for d in file["differences"]]
        differ = [d for d in differences if d[1] != "not there"]
        added = "".join(p.read_text() for p in (ROOT / "patches/proposals" / name).glob("*.patch"))
        names = tuple(set(re.findall(r"^\+ *def (test_\w+)", added, flags=re.MULTILINE)))
        new = [(test, after) for test, before, after in differences if before == "not there"]
        own = [after for test, after in new if test.rpartition(".")[2].startswith(names)]
        counts = ", ".join(f"{own.count(r)} {r}" for r in sorted(set(own))) or "none"
        changed = f"{judged['points that changed']:,} of {judged['points']:,}"
        row = [code(name), built["build"]["files"], changed, len(judged["failures"]), len(differ)]
        rows.append([*row, counts])
    note = f"PyTorch {found['tree']['release']}, `--minimal`. {found['note']}"
    return markdown(*rows, right=(1, 2, 3, 4)) + "\n\n" + note


def is_usual(key, value):
    """What --minimal says of every tree."""
    return value == "0" and key.startswith(("USE_", "BUILD_TEST"))


def source_build_tests():
    """Upstream's tests in each state."""
    names, steps = zip(*states())
    rows = [["", *names]]
    for file in steps[0]["tests"]["files"]:
        found = [s["tests"]["files"][file]["counts"] for s in steps]
        words = [", ".join(f"{n} {result}" for result, n in counts.items()) for counts in found]
        rows.append([code(file), *words])
    crashes = [
        f"{code(test)} ended the process {times} of at most 3 times ({name}); then it was run again."
        for name, s in states()
        for file in s["tests"]["files"].values()
        for test, times in file["crashes"].items()
    ]
    return "\n\n".join([markdown(*rows), *crashes])


def source_build_times():
    """The gradients' time in each state."""
    stock, *others = SOURCE_BUILD["states"]["undone"]["times"]["microseconds"].items()
    _, rounds = stock
    keys = [key for key in rounds[0] if ";" in key]
    cases, columns = (list(dict.fromkeys(c)) for c in zip(*(k.rsplit("; ", 1) for k in keys)))
    rows = [["µs", *(f"{c} elements" for c in columns)]]
    for case in cases:
        row = [code(case)]
        for key in (f"{case}; {column}" for column in columns):
            cell = [f"{statistics.median(r[key] for r in rounds):,.0f}"]
            for _, mine in others:
                pairs = sorted(m[key] / s[key] for m, s in zip(mine, rounds, strict=True))
                cell.append(f"{statistics.median(pairs):.2f} ({pairs[0]:.2f}–{pairs[-1]:.2f})")
            row.append("; ".join(cell))
        rows.append(row)
    note = (
        f"Stock in µs, then {' and '.join(code(name) for name, _ in others)} divided by it. One thread; the fastest "
        f"call in a process; the median, and in brackets the least and the most, of {len(rounds)} rounds, in each of "
        "which every state has a process with its own libraries. The kernels are optimised, for one CPU "
        "capability without AVX; what calls them is not."
    )
    return markdown(*rows, right=range(1, len(columns) + 1)) + "\n\n" + note


def verified():
    """What `verify` found, release by release: docs/verified.json."""
    rows = [["torch", "series", "gradients", "points that changed", "OpInfo samples"]]
    for r in json.loads((ROOT / "docs/verified.json").read_text()):
        convention = "unchanged" if r["unchanged"] else r["convention"]
        numbers = f"{r['points that changed']:,}", f"{r['opinfo samples']:,}"
        rows.append([r["torch"], code(r["series"]), convention, *numbers])
    return markdown(*rows, right=(3, 4))


TABLES = {
    "proposals_built": proposals_built,
    "source_build": source_build,
    "source_build_tests": source_build_tests,
    "source_build_times": source_build_times,
    "verified": verified,
}
