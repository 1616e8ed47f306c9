"""clampgrad survey: what the installed torch does at kinks and ties, beside what it documents."""

from __future__ import annotations

import argparse

import torch

from clampgrad._pin.installed import patched
from clampgrad._tools.optional import need
from clampgrad._tools.survey import COLUMNS, RULES, Row, as_data, as_markdown, cells, survey
from clampgrad.cli.output import as_usage_error, write, write_json

COLOURS = {"as documented": "green", "a free choice": "green"}


def show(rows: list[Row]) -> None:
    from clampgrad.cli.table import new_table, rendered

    table = new_table(
        f"The gradient at kinks and ties: torch {torch.__version__}",
        COLUMNS,
        left=("function", "at", "verdict"),
        caption="\n".join(
            [
                *(f"Rule {number}, {text}." for number, text in RULES.items()),
                "TorchScript: where it differs from eager mode. NaN: where the first argument is NaN.",
                *filter(None, [patched()]),
            ]
        ),
    )
    for row in rows:
        *before, verdict, scripted, nan = cells(row)
        colour = COLOURS.get(verdict, "red" if verdict == "no subgradient" else "yellow")
        table.add_row(*before, f"[{colour}]{verdict}[/]", scripted, nan)
    write(rendered(table))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad survey",
        description="Measure the gradients of the installed PyTorch at kinks and ties, and compare them with its "
        "documentation.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--device", default="cpu", help="the device to measure on (default: cpu)")
    options = parser.parse_args(arguments)
    # A device that does not exist is refused with one of these.
    with as_usage_error(parser, RuntimeError, AssertionError):
        torch.zeros((), device=options.device).item()
    if not (options.json or options.markdown):
        with as_usage_error(parser, ImportError):
            need("rich")
    rows = survey(options.device)
    if options.json:
        write_json(as_data(rows))
    elif options.markdown:
        write(as_markdown(rows))
    else:
        show(rows)
    return 0
