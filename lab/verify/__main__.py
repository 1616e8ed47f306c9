"""Verifies a patch in the installed PyTorch: generates its code, compiles it, and compares the
gradients. Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused."""

import argparse
import re
import sys
from dataclasses import replace
from datetime import date
from itertools import groupby
from pathlib import Path

import torch

import records
from oracle import CONVENTIONS

from ..series import Claim, Refusal, Series, default, named
from .proof import CODE, GRADIENTS, SAVED, verify


def arguments(words):
    parser = argparse.ArgumentParser("python -m lab.verify", description=__doc__)
    add = parser.add_argument
    add("--series", help="the series (default: the one for the installed PyTorch)")
    add("--patch", type=Path, action="append", help="your own patch; can be repeated, in order")
    add("--convention", choices=CONVENTIONS, help="what must hold (default: that of the series)")
    add("--scope", nargs="+", default=[], metavar="WORD", help="what may change, as numbers, fmax")
    add(
        "--forward",
        choices=["2.15"],
        help="forward mode as that release has it at a NaN, not the transpose",
    )
    add("--expect", choices=["unchanged"], help="that no gradient changes, instead of some")
    add("--allow-saved", action="store_true", help="what nodes save for backward may change")
    add("--allow-unproved", action="store_true", help="exit with 0 even if files were not checked")
    add("--quick", action="store_true", help="skip Inductor and OpInfo")
    add("--record", action="store_true", help="add what was found to records/verified.jsonl")
    options = parser.parse_args(words)
    if options.record and (options.quick or options.patch):
        parser.error("--record is for all checks of a series, without --quick and --patch")
    return options


def asked(options, release):
    """A series claims what its file says, a patch what the options say."""
    if options.patch:
        minor = release.rpartition(".")[0]
        series = Series("a patch", [minor], Claim(), "", options.patch, set())
    else:
        series = named(options.series) if options.series else default(release)
    said = {"convention": options.convention, "scope": frozenset(options.scope)}
    said |= {
        "unchanged": bool(options.expect),
        "saved": options.allow_saved,
        "forward": options.forward,
    }
    return replace(series, claim=replace(series.claim, **{k: v for k, v in said.items() if v}))


def kind_of(line):
    """The operator and the kind of bounds of a key, or of a line that begins with one."""
    return line.partition(":")[0].rpartition(", ")[0] or line


def mistake(line):
    """What failures that differ in the point and in the way to call it have in common."""
    arguments = re.findall(r"the (?:gradient of|tangent along) \w+", line)
    return kind_of(line), arguments or line.partition(": ")[2:]


def report(found, claim):
    """A line for each operator and kind of bounds, and for each
    argument that has a wrong gradient."""
    for key in (CODE, "not proved"):
        print(f"{key}:", *(f"  {what}" for what in found[key]), sep="\n")
    print(f"{GRADIENTS}:")
    for kind, keys in groupby(sorted(found[GRADIENTS], key=kind_of), kind_of):
        changed, points = map(sum, zip(*(counts := [found[GRADIENTS][key] for key in keys])))
        print(f"  {kind}: {changed:,} of {points:,} points (ways to call it: {len(counts)})")
    if claim.saved:
        print(f"{SAVED}:", *(f"  {what}" for what in found[SAVED]), sep="\n")
    for _, (first, *others) in groupby(sorted(found["failures"], key=mistake), mistake):
        print(first, f"(other ways to call it: {len(others)})" * bool(others))
    if not found["failures"]:
        holds = found["convention"] or "the gradients above changed"
        whole = "All of it" if not found["not proved"] else "What was checked"
        print(f"{whole} holds: {'no gradient changed' if claim.unchanged else holds}.")


def record(series, found, release):
    """For the table of lab.fill_tables."""
    found_before = records.read("verified")
    rows = {(r["torch"], r["series"]): r for r in found_before.pop("rows")}
    rows[release, series.name] = {
        "torch": release,
        "series": series.name,
        "convention": found["convention"],
        "unchanged": series.claim.unchanged,
        "points that changed": sum(changed for changed, _ in found[GRADIENTS].values()),
        "opinfo samples": found["samples"],
        "not proved": found["not proved"],
        "date": f"{date.today()}",
    }
    records.write("verified", [rows[key] for key in sorted(rows)], **found_before)


def main(words=None):
    options = arguments(words)
    release = torch.__version__.split("+")[0]
    try:
        series = asked(options, release)
        found = verify(series, options.quick)
    except Refusal as refusal:
        print(f"refused: {refusal}")
        return 2
    report(found, series.claim)
    if options.record and not found["failures"]:
        record(series, found, release)
    return bool(found["failures"] or (found["not proved"] and not options.allow_unproved))


if __name__ == "__main__":
    sys.exit(main())
