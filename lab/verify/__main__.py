"""Verifies a patch in the installed PyTorch: generates its code, compiles it, and compares the gradients."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

try:
    import torch
except ModuleNotFoundError as error:
    print(
        f"refused: verify asks the installed torch, and there is no {error.name}: pip install {error.name}."
    )
    sys.exit(2)
from ..series import Refusal
from .held import table
from .run import Question, check_what_is_needed, of_series, verify
from .told import told

# Of every series that changes C++, on two cores (docs/verified.json).
TAKES = "1 to 12 minutes"
CODES = "Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused."
FLAGS = {
    "--allow-unproved": "exit with 0 even if a file of the patch was not checked",
    "--quick": "skip Inductor and OpInfo",
    "--json": "print the result as JSON",
}


def arguments(words: list[str] | None) -> argparse.Namespace:
    takes = f"On two cores this takes {TAKES}, for a patch of TorchScript alone seconds."
    parser = argparse.ArgumentParser("python -m lab.verify", None, f"{__doc__} {takes}", CODES)
    add = parser.add_argument
    add("--series", help="the series (default: the one for the installed PyTorch)")
    add("--patch", type=Path, action="append", help="your own patch; can be repeated, in order")
    add("--source", type=Path, help="a checkout to take FunctionsManual.cpp from")
    add("--convention", help="what must hold (default: the one that the series names)")
    scope = (
        "what the patch may change: `numbers`, `tensors`, names of operators; all else must stay"
    )
    add("--scope", nargs="+", default=[], metavar="WORD", help=scope)
    expect = "whether gradients must change (default: changed)"
    add("--expect", choices=["changed", "unchanged"], help=expect)
    for flag, text in FLAGS.items():
        add(flag, action="store_true", help=text)
    return parser.parse_args(words)


def question(options: argparse.Namespace) -> Question:
    """What is asked: a series claims what its file says, a patch what the options say."""
    if options.source and not options.source.exists():
        raise Refusal(f"There is no {options.source}.")
    release = torch.__version__.split("+")[0]
    asked = Question(options.patch) if options.patch else of_series(options.series, release)
    check_what_is_needed()
    known = table().CONVENTIONS
    if options.convention not in (None, *known):
        raise Refusal(f"There is no convention {options.convention}; there are {', '.join(known)}.")
    claim = replace(
        asked.claim,
        convention=options.convention or asked.claim.convention,
        scope=frozenset(options.scope) or asked.claim.scope,
        unchanged=options.expect == "unchanged" if options.expect else asked.claim.unchanged,
    )
    return replace(asked, claim=claim, source=options.source, quick=options.quick)


def steps() -> Callable[[str], None]:
    """A function that says which step begins, and how long it has taken so far."""
    began = time.monotonic()

    def say(step: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"{minutes}:{seconds:02}  {step}", file=sys.stderr, flush=True)

    return say


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    try:
        asked = question(options)
        less = "less than the usual " if asked.quick else ""
        print(f"this takes {less}{TAKES} on two cores", file=sys.stderr)
        result = verify(asked, steps())
    except Refusal as refusal:
        print(json.dumps({"error": str(refusal)}) if options.json else f"refused: {refusal}")
        return 2
    print(json.dumps(result) if options.json else told(result))
    unproved = result["not proved"] and not options.allow_unproved
    return 1 if result["failures"] or unproved else 0


if __name__ == "__main__":
    sys.exit(main())
