"""Verifies a patch in the installed PyTorch: generates its code, compiles it, and compares the gradients."""

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch

from oracle import CONVENTIONS

from ..series import Claim, Refusal, Series, default, named
from .proof import CODE, GRADIENTS, verify

RECORD = Path(__file__).resolve().parents[2] / "docs/verified.json"
CODES = "Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused."


def takes():
    """What every series that changes C++ took, as words."""
    runs = [r for r in json.loads(RECORD.read_text()) if "torchscript" not in r["series"]]
    minutes = [r["seconds"] / 60 for r in runs]
    return f"{math.floor(min(minutes))} to {math.ceil(max(minutes))} minutes on two cores"


def arguments(words):
    text = f"{__doc__} This takes {takes()}, for a patch of TorchScript alone seconds."
    parser = argparse.ArgumentParser("python -m lab.verify", None, text, CODES)
    add = parser.add_argument
    add("--series", help="the series (default: the one for the installed PyTorch)")
    add("--patch", type=Path, action="append", help="your own patch; can be repeated, in order")
    convention = "what must hold (default: the one that the series names)"
    add("--convention", help=convention, choices=CONVENTIONS)
    scope = "what the patch may change: numbers, tensors, names of operators; all else must stay"
    add("--scope", nargs="+", default=[], metavar="WORD", help=scope)
    expect = "whether gradients must change (default: changed)"
    add("--expect", choices=["changed", "unchanged"], help=expect)
    unproved = "exit with 0 even if a file of the patch was not checked"
    add("--allow-unproved", action="store_true", help=unproved)
    add("--quick", action="store_true", help="skip Inductor and OpInfo")
    add("--record", action="store_true", help="add what was found to docs/verified.json")
    return parser.parse_args(words)


def asked(options, release):
    """A series claims what its file says, a patch what the options say."""
    if options.patch:
        minor = release.rpartition(".")[0]
        series = Series("a patch", [minor], Claim(), "", options.patch, set())
    else:
        series = named(options.series) if options.series else default(release)
    claim = series.claim
    claim = replace(
        claim,
        convention=options.convention or claim.convention,
        scope=frozenset(options.scope) or claim.scope,
        unchanged=options.expect == "unchanged" if options.expect else claim.unchanged,
    )
    return replace(series, claim=claim)


def report(found):
    """A line for each operator and kind of bounds."""
    for key in (CODE, "not proved"):
        print(f"{key}:", *(f"  {what}" for what in found[key]), sep="\n")
    counts, failures = defaultdict(list), defaultdict(list)
    for key, count in found[GRADIENTS].items():
        counts[key.rpartition(", ")[0] or key].append(count)
    print(f"{GRADIENTS}:")
    for key, every in counts.items():
        changed, points = map(sum, zip(*every))
        print(f"  {key}: {changed:,} of {points:,} points (ways to call it: {len(every)})")
    for line in found["failures"]:
        failures[line.partition(":")[0].rpartition(", ")[0] or line].append(line)
    for first, *others in failures.values():
        print(first, f"(other ways to call it: {len(others)})" * bool(others))
    if not failures:
        print(f"All of it holds: {found['convention']}.")


def record(series, found, seconds):
    """For the table of lab.fill_tables."""
    rows = {(r["torch"], r["series"]): r for r in json.loads(RECORD.read_text())}
    release = torch.__version__.split("+")[0]
    rows[release, series.name] = {
        "torch": release,
        "series": series.name,
        "convention": found["convention"],
        "unchanged": series.claim.unchanged,
        "points that changed": sum(changed for changed, _ in found[GRADIENTS].values()),
        "opinfo samples": found["samples"],
        "not proved": found["not proved"],
        "seconds": round(seconds),
    }
    RECORD.write_text(json.dumps([rows[key] for key in sorted(rows)], indent=1) + "\n")


def main(words=None):
    options = arguments(words)
    print(f"this takes {takes()}, with --quick less", file=sys.stderr)
    began = time.monotonic()
    try:
        series = asked(options, torch.__version__.split("+")[0])
        found = verify(series, options.quick)
    except Refusal as refusal:
        print(f"refused: {refusal}")
        return 2
    report(found)
    if options.record and not found["failures"]:
        record(series, found, time.monotonic() - began)
    return bool(found["failures"] or (found["not proved"] and not options.allow_unproved))


if __name__ == "__main__":
    sys.exit(main())
