"""Whether the convention matters to a program: audit [--every N] script.py ARGS."""

from __future__ import annotations

import argparse

from clampgrad._audit import COLUMNS, LEFT, Report, audit, cells
from clampgrad._optional import need
from clampgrad.cli import program


def show(report: Report) -> None:
    from clampgrad.cli.table import new_table, print_table

    table = new_table("Clamp-like calls, what matters first", COLUMNS, LEFT, report.note())
    for finding in report:
        colour = "yellow" if finding.weight()[0] > 0 else ""
        table.add_row(*cells(finding), style=colour)
    print_table(table)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m clampgrad audit",
        description="Run a program, count what its clamp-like calls do, and what conventions change.",
        usage=f"%(prog)s [-h] [--every N] [--json FILE] [--picture FILE] {program.USAGE}",
    )
    parser.add_argument(
        "--every", metavar="N", type=int, default=1, help="look at one in N calls of each site"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything there, as JSON")
    parser.add_argument("--picture", metavar="FILE", help="draw it there")
    program.add_to(parser)
    options = parser.parse_args(arguments)
    program.check(parser, options)
    if options.every < 1:
        parser.error("--every must be at least 1")
    need("rich")  # before the program runs, not after
    with audit(every=options.every) as report:
        try:
            program.run(options)
        finally:  # also of a program that calls sys.exit, or fails
            show(report)
            if options.json:
                report.save(options.json)
            if options.picture:
                report.picture(options.picture)
    return 0
