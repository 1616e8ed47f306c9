"""python -m lab.verify: verifies a patch in the installed PyTorch.

Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused.
"""

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
TAKES = "1 to 9 minutes"


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.verify",
        description="Verify a patch in the installed PyTorch: generate its code, compile it, and compare the "
        f"gradients. On two cores this takes {TAKES}, for a patch of TorchScript alone seconds.",
        epilog="Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused.",
    )
    parser.add_argument("--series", help="the series (default: the one for the installed PyTorch)")
    parser.add_argument(
        "--patch", type=Path, action="append", help="a patch of your own; can be repeated, in order"
    )
    parser.add_argument("--source", type=Path, help="a checkout to take FunctionsManual.cpp from")
    parser.add_argument(
        "--convention",
        help="the convention that must hold (default: the one that the series names)",
    )
    parser.add_argument(
        "--scope",
        nargs="+",
        default=[],
        metavar="WORD",
        help="what the patch may change: `numbers`, `tensors`, names of operators; all else must stay",
    )
    parser.add_argument(
        "--expect",
        choices=["changed", "unchanged"],
        help="whether gradients must change (default: changed)",
    )
    parser.add_argument(
        "--oracle",
        type=Path,
        help="a Python file with gradients(operator, args, kwargs, g), the gradients of OpInfo's samples",
    )
    parser.add_argument(
        "--allow-unproved",
        action="store_true",
        help="exit with 0 even if a file of the patch was not checked",
    )
    parser.add_argument("--quick", action="store_true", help="skip Inductor and OpInfo")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args(words)


def question(options: argparse.Namespace) -> Question:
    """What is asked: a series claims what its file says, a patch what the options say."""
    for path in (options.source, options.oracle):
        if path and not path.exists():
            raise Refusal(f"There is no {path}.")
    if options.patch:
        asked = Question(options.patch)
    else:
        asked = of_series(options.series, torch.__version__.split("+")[0])
    check_what_is_needed()
    conventions = table().CONVENTIONS
    if options.convention not in (None, *conventions):
        raise Refusal(
            f"There is no convention {options.convention}; there are {', '.join(conventions)}."
        )
    claim = asked.claim
    return replace(
        asked,
        claim=replace(
            claim,
            convention=options.convention or claim.convention,
            scope=frozenset(options.scope) or claim.scope,
            unchanged=options.expect == "unchanged" if options.expect else claim.unchanged,
        ),
        source=options.source,
        oracle=options.oracle,
        quick=options.quick,
    )


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
