"""clampgrad patches: patches for PyTorch's own source. Exit codes: 0 success, 2 refused."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from clampgrad._tools.tables import Table, width_of
from clampgrad.cli.output import write
from clampgrad.patches import apply as applying
from clampgrad.patches.series import PATCHES, Refusal, all_series


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="clampgrad patches",
        description="Apply patches to a PyTorch source tree.",
        epilog="Exit codes: 0 success, 2 refused.",
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
    try:  # export
        shutil.copytree(PATCHES, options.directory, dirs_exist_ok=True)
    except OSError as error:
        raise Refusal(f"cannot write {options.directory}: {error}") from None
    return {"directory": str(options.directory)}, f"written to {options.directory}"


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        result, text = run(options)
    except Refusal as refusal:
        write(json.dumps({"error": str(refusal)}) if options.json else f"refused: {refusal}")
        return 2
    write(json.dumps(result) if options.json else text)
    return 0
