"""clampgrad survey: what the installed torch does at kinks and ties, beside what it documents."""

import argparse

import torch

from clampgrad._tools.survey import as_data, as_markdown, survey
from clampgrad.cli.output import write, write_json


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad survey",
        description="Measure the gradients of the installed PyTorch at kinks and ties, and compare "
        "them with its documentation.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--device", default="cpu", help="the device to measure on (default: cpu)")
    options = parser.parse_args(arguments)
    try:
        torch.zeros((), device=options.device).item()
    except (RuntimeError, AssertionError) as error:  # there is no such device
        parser.error(str(error))
    rows = survey(options.device)
    if options.json:
        write_json(as_data(rows))
    elif options.markdown:
        write(as_markdown(rows))
    else:
        write(f"\n{rows}")
    return 0
