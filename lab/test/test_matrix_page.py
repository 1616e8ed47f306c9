"""docs/with_pytorch.md is what the script makes of the last run."""

import re

from lab.matrix_page import PAGE, page, read
from matrix.waivers import REFUSED

CHANGED = "input and output changed in place"  # promised of clampgrad's own functions


def test_the_page_is_generated():
    assert PAGE.read_text() == page(read())


def test_every_cell_of_that_run_held():
    for implementation, found in read().items():
        cells = sum(r["held"] for r in found["rows"])
        assert found["held"] == cells > (3000 if implementation == "compiled" else 1000)


def test_a_pin_is_equal_refused_or_in_the_limits():
    """In every context that a call of torch's has, for both implementations."""
    for found in read().values():
        contexts = {r["context"] for r in found["rows"]} - {"deepcopy and pickle", CHANGED}
        for context in contexts:
            rows = [r for r in found["rows"] if r["context"] == context and "process" in r["form"]]
            assert sum(r["held"] + r["refused"] for r in rows), context


def test_what_a_pin_refuses_is_in_the_limits():
    limits = (PAGE.parent / "limits.md").read_text()
    for reason in REFUSED:
        (anchor,) = re.findall(r"\(limits\.md#([\w-]+)\)", reason)
        assert f"\n## {anchor.replace('-', ' ')}\n" in limits.lower()
