"""docs/support.md says what the last run of the matrix found: all of
it held, or is in the limits."""

import re
from pathlib import Path

import records
from testing.matrix.waivers import REFUSED

PAGE = Path(__file__).resolve().parents[2] / "docs/support.md"
CHANGED = "input and output changed in place"  # promised of clampgrad's own functions
RUN = records.read("matrix")


def test_every_cell_of_that_run_held():
    for implementation, least in (("compiled", 3000), ("portable", 1000)):
        rows = [r for r in RUN["rows"] if r["implementation"] == implementation]
        cells = sum(cell["held"] for row in rows for cell in row["forms"].values())
        assert RUN[implementation]["held"] == cells > least


def test_a_pin_is_equal_refused_or_in_the_limits():
    """In every context of torch's own calls, for both implementations."""
    for row in RUN["rows"]:
        if row["context"] not in ("deepcopy and pickle", CHANGED):
            cells = [cell for form, cell in row["forms"].items() if "process" in form]
            assert sum(cell["held"] + cell.get("refused", 0) for cell in cells), row["context"]


def test_what_a_pin_refuses_is_in_the_limits():
    for reason in REFUSED:
        (anchor,) = re.findall(r"\(support\.md#([\w-]+)\)", reason)
        assert f"\n### {anchor.replace('-', ' ')}\n" in PAGE.read_text().lower()
