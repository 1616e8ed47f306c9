"""docs/with_pytorch.md is what the script makes of the last run."""

import json

from matrix.report import JSON, PAGE, page


def test_the_page_is_generated():
    assert PAGE.read_text() == page(json.loads(JSON.read_text()))


def test_every_cell_of_that_run_held():
    found = json.loads(JSON.read_text())
    assert found["held"] == sum(r["held"] for r in found["rows"]) > 3000
