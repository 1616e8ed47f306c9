"""clampgrad patches: patches for PyTorch's own source, applied and verified.

Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused.
"""

import argparse
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from clampgrad._contract.table import CONVENTIONS
from clampgrad._tools.tables import Table, width_of
from clampgrad.cli.output import write
from clampgrad.patches import apply as applying
from clampgrad.patches.series import PATCHES, Refusal, all_series
from clampgrad.patches.told import told
from clampgrad.patches.verify.run import Question, of_series, verify

logger = logging.getLogger("clampgrad")

# Of every series that changes C++, on two cores (docs/verified.json).
TAKES = "3 to 9 minutes"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="clampgrad patches",
        description="Apply patches to a PyTorch source tree, and verify them in the installed PyTorch.",
        epilog="Exit codes: 0 success, 1 a check failed or is incomplete, 2 refused.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the result as JSON")

    commands.add_parser("list", parents=[common], help="list the series")
    status = commands.add_parser(
        "status", parents=[common], help="show the release and state of a source tree"
    )
    status.add_argument("source", type=Path, help="a checkout of PyTorch")
    apply = commands.add_parser(
        "apply", parents=[common], help="apply a series, whole or not at all, or undo it"
    )
    apply.add_argument("source", type=Path, help="a checkout of PyTorch")
    apply.add_argument("--series", help="the series, if several are for the release")
    apply.add_argument("--check", action="store_true", help="only check whether it would apply")
    apply.add_argument("--reverse", action="store_true", help="undo it")
    apply.add_argument(
        "--any-release", action="store_true", help="try it on a release that it is not for"
    )
    proof = commands.add_parser(
        "verify",
        parents=[common],
        help=f"verify a patch in the installed PyTorch ({TAKES})",
        description="Verify a patch in the installed PyTorch: generate its code, compile it, and compare the "
        f"gradients. On two cores this takes {TAKES}, for a patch of TorchScript alone seconds.",
    )
    proof.add_argument("--series", help="the series (default: the one for the installed PyTorch)")
    proof.add_argument(
        "--patch", type=Path, action="append", help="a patch of your own; can be repeated, in order"
    )
    proof.add_argument("--source", type=Path, help="a checkout to take FunctionsManual.cpp from")
    proof.add_argument(
        "--convention",
        help="the convention that must hold (default: the one that the series names)",
    )
    proof.add_argument(
        "--scope",
        nargs="+",
        default=[],
        metavar="WORD",
        help="what the patch may change: `numbers`, `tensors`, names of operators; all else must stay",
    )
    proof.add_argument(
        "--expect",
        choices=["changed", "unchanged"],
        help="whether gradients must change (default: changed)",
    )
    proof.add_argument(
        "--oracle",
        type=Path,
        help="a Python file with gradients(operator, args, kwargs, g), the gradients of OpInfo's samples",
    )
    proof.add_argument(
        "--allow-unproved",
        action="store_true",
        help="exit with 0 even if a file of the patch was not checked",
    )
    proof.add_argument("--quick", action="store_true", help="skip Inductor and OpInfo")
    export = commands.add_parser("export", parents=[common], help="copy the patches to a folder")
    export.add_argument("directory", type=Path)
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> tuple[dict, str]:
    """The result of a command, for machines and for people."""
    result: dict
    if options.command == "list":
        series = list(all_series().values())
        result = {s.name: {"releases": s.releases, "summary": s.summary} for s in series}
        columns = ["series", "releases", "what it does"]
        table = Table(columns, left=columns, names=2)
        for s in series:
            table.add_row(s.name, s.span, s.summary)
        return result, table.text(width_of(sys.stdout))
    if options.command == "status":
        result = applying.status(options.source).as_dict()
        return result, "\n".join(f"{key:11} {value}" for key, value in result.items())
    if options.command == "apply":
        done, skipped = applying.apply(
            options.source, options.series, options.check, options.reverse, options.any_release
        )
        word = "would be " * options.check + ("undone" if options.reverse else "applied")
        lines = [f"{name}: {word}" for name in done]
        lines += [f"{name}: skipped, its text is not in this tree" for name in skipped]
        return {"done": done, "skipped": skipped}, "\n".join(lines)
    if options.command == "export":
        try:
            shutil.copytree(PATCHES, options.directory, dirs_exist_ok=True)
        except OSError as error:
            raise Refusal(f"cannot write {options.directory}: {error}") from None
        return {"directory": str(options.directory)}, f"written to {options.directory}"
    asked = question(options)
    less = "less than the usual " if asked.quick else ""
    logger.info("this takes %s%s on two cores", less, TAKES)
    result = verify(asked, steps())
    return result, told(result)


def steps() -> Callable[[str], None]:
    """A function that says which step of a long task begins, and how long it has taken so far."""
    began = time.monotonic()

    def say(step: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        logger.info("%d:%02d  %s", minutes, seconds, step)

    return say


def question(options: argparse.Namespace) -> Question:
    """What `verify` is asked: a series claims what its file says, a patch what the options say."""
    for path in (options.source, options.oracle):
        if path and not path.exists():
            raise Refusal(f"There is no {path}.")
    if options.convention not in (None, *CONVENTIONS):
        raise Refusal(
            f"There is no convention {options.convention}; there are {', '.join(CONVENTIONS)}."
        )
    if options.patch:
        asked = Question(options.patch)
    else:
        asked = of_series(options.series, torch.__version__.split("+")[0])
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


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        result, text = run(options)
    except Refusal as refusal:
        write(json.dumps({"error": str(refusal)}) if options.json else f"refused: {refusal}")
        return 2
    write(json.dumps(result) if options.json else text)
    unproved = result.get("not proved") and not options.allow_unproved
    return 1 if result.get("failures") or unproved else 0
