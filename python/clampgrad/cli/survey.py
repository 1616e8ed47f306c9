"""clampgrad survey: what the installed torch does at kinks and ties, beside what it documents."""

import argparse
import sys

import torch

from clampgrad._tools.survey import as_data, as_markdown, survey
from clampgrad._tools.tables import width_of
from clampgrad.cli.output import as_usage_error, write, write_json


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad survey",
        description="Measure the gradients of the installed PyTorch at kinks and ties, and compare them with its "
        "documentation.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    form.add_argument(
        "--wide", action="store_true", help="print a table, also where the terminal is narrower"
    )
    parser.add_argument("--device", default="cpu", help="the device to measure on (default: cpu)")
    options = parser.parse_args(arguments)
    # A device that does not exist is refused with one of these.
    with as_usage_error(parser, RuntimeError, AssertionError):
        torch.zeros((), device=options.device).item()
    rows = survey(options.device)
    if options.json:
        write_json(as_data(rows))
    elif options.markdown:
        write(as_markdown(rows))
    else:
        width = None if options.wide else width_of(sys.stdout)
        write(f"\n{rows.table().text(width)}")
    return 0
