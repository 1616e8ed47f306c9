"""The survey finds out by itself what is documented, and measures what the installed torch does."""

import html
import json

import pytest
import torch

import clampgrad
from clampgrad._tools.survey import measured
from clampgrad._tools.survey.measured import verdict
from clampgrad._tools.survey.rows import as_data
from common import RELEASED


@pytest.fixture(scope="module")
def rows():
    return {(row.function, row.at): row for row in clampgrad.survey()}


EACH_OF_THREE = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
# The limits of the gradient, the rule, what it asks for: mathematics, the same on every release.
KNOWN = {
    ("torch.clamp(x, 0, 6)", "x = 0"): ([(0,), (1,)], 2, (0,)),
    ("torch.clamp(x, 0, 6)", "x = 6"): ([(0,), (1,)], 3, (0,)),
    ("torch.clamp(x, 1, 1)", "x = 1"): ([(0,)], 1, (0,)),
    ("torch.clamp(x, lo, hi)", "x = 1, lo = 1, hi = 1"): ([*EACH_OF_THREE], 4, None),
    ("torch.clamp(x, lo, hi)", "x = 6, lo = 0, hi = 6"): (EACH_OF_THREE[::2], 3, (0.5, 0, 0.5)),
    ("torch.maximum(x, c)", "x = 0, c = 0"): ([(0,), (1,)], 2, (0,)),
    ("torch.max(x, 0)[0]", "x = (1, 1)"): ([(0, 1), (1, 0)], 2, (0.5, 0.5)),
    ("F.hardswish(x)", "x = 3"): ([(1,), (1.5,)], 3, (1,)),
    ("F.hardshrink(x, 0.5)", "x = 0.5"): ([(0,), (1,)], 4, None),
    ("torch.abs(x)", "x = 0"): ([(-1,), (1,)], 2, (0,)),
}


def test_what_is_documented(rows):
    found = {key: (rows[key].limits, rows[key].rule, rows[key].expected) for key in KNOWN}
    assert found == KNOWN


def test_what_is_measured(rows):
    """The change of 2.14, and what did not change with it."""
    old = RELEASED == "inclusive"
    assert rows["torch.clamp(x, 0, 6)", "x = 0"].measured == [(float(old),)]
    assert rows["torch.maximum(x, y)", "x = 1, y = 1"].measured == [(0.5, 0.5)]
    for key, says in {
        ("torch.clamp(x, 0, 6)", "x = 0"): "not of least norm" if old else "as documented",
        ("torch.clamp(x, 1, 1)", "x = 1"): "no subgradient" if old else "as documented",
        ("torch.maximum(x, y)", "x = 1, y = 1"): "as documented",
        ("torch.maximum(x, c)", "x = 0, c = 0"): "not of least norm",
        ("F.relu(x)", "x = 0"): "as documented",
        ("torch.max(x, 0)[0]", "x = (1, 1)"): "not of least norm",
        ("F.hardshrink(x, 0.5)", "x = 0.5"): "a free choice",
    }.items():
        assert rows[key].verdict == says, key


def test_nan(rows):
    at_nan = {function: row.nan for (function, _), row in rows.items()}
    assert at_nan["F.relu(x)"] == [(1.0,)]
    assert at_nan["torch.clamp_min(x, 0)"] == [(0.0,)]
    # A kernel whose vector body and tail disagree shows up as two values; either way 0 is one.
    assert (0.0,) in at_nan["F.hardtanh(x, -1.0, 1.0)"]


def test_a_pin_changes_nothing(monkeypatch):
    """Otherwise it would measure our gradient."""
    monkeypatch.setattr(measured, "CASES", measured.CASES[:2])
    expected = as_data(clampgrad.survey())
    with clampgrad.pin("half"):
        assert as_data(clampgrad.survey()) == expected


def test_the_verdict_can_be_bad():
    limits = [(0.0,), (1.0,)]
    assert verdict([(0.5,)], (0.0,), limits) == "not of least norm"
    assert verdict([(0.0,), (1.0,)], (0.0,), limits) == "not of least norm"
    assert verdict([(1.5,)], (0.0,), limits) == "no subgradient"
    assert verdict([(float("nan"),)], None, limits) == "no subgradient"
    assert verdict([(0.0, 0.0)], (0.5, 0.5), [(1.0, 0.0), (0.0, 1.0)]) == "no subgradient"


def test_the_command(command):
    """It prints a table, Markdown or JSON, each with every row."""
    table, markdown, data = (command("survey", *o)[1] for o in ([], ["--markdown"], ["--json"]))
    data = json.loads(data)
    assert data["torch"] == torch.__version__
    assert len(data["rows"]) == markdown.count("\n| `") >= 35
    for row in data["rows"]:
        assert row["function"] in table and f"| `{row['function']}` |" in markdown
        assert row["verdict"] in table
    assert "not of least norm *" in table and "*: not what PyTorch documents." in table


def test_how_a_survey_is_shown(rows):
    found = clampgrad.Survey([*rows.values()][:7])
    assert repr(found) == f"<clampgrad.Survey: torch {torch.__version__}, 7 points; print it>"
    assert found.table().text() in html.unescape(found._repr_html_())
