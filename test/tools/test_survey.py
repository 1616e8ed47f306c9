"""The survey finds out by itself what is documented, and measures what the installed torch does."""

import html
import json

import pytest
import torch

import clampgrad
from clampgrad._tools.survey.measured import verdict
from clampgrad._tools.survey.rows import as_data
from testing.releases import RELEASED


@pytest.fixture(scope="module")
def rows():
    return {(row.function, row.at): row for row in clampgrad.survey()}


EACH_OF_FOUR = [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)]
RANKING = "F.margin_ranking_loss(x, c, c + 1, 1.0, reduction='none')"
EMBEDDING = "F.hinge_embedding_loss(x, c - 1, reduction='none')"
EACH_OF_THREE = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
OLD = RELEASED == "inclusive"
CHANGED = "not of least norm" if OLD else "as documented"  # by 2.14
# The limits of the gradient, the rule and what it asks for: mathematics, the same on
# every release. And a verdict.
KNOWN = {
    ("torch.clamp(x, 0, 6)", "x = 0"): ([(0,), (1,)], 2, (0,), CHANGED),
    ("torch.clamp(x, 0, 6)", "x = 6"): ([(0,), (1,)], 3, (0,), CHANGED),
    ("torch.clamp(x, 1, 1)", "x = 1"): ([(0,)], 1, (0,), "no subgradient" if OLD else CHANGED),
    ("torch.clamp(x, lo, hi)", "x = 1, lo = 1, hi = 1"): (EACH_OF_THREE, 4, None),
    ("torch.clamp(x, lo, hi)", "x = 6, lo = 0, hi = 6"): (EACH_OF_THREE[::2], 3, (0.5, 0, 0.5)),
    ("torch.maximum(x, c)", "x = 0, c = 0"): ([(0,), (1,)], 2, (0,), "not of least norm"),
    ("torch.maximum(x, y)", "x = 1, y = 1"): ([(0, 1), (1, 0)], 2, (0.5, 0.5), "as documented"),
    ("torch.max(x, 0)[0]", "x = (1, 1)"): ([(0, 1), (1, 0)], 2, (0.5, 0.5), "not of least norm"),
    ("F.relu(x)", "x = 0"): ([(0,), (1,)], 2, (0,), "as documented"),
    ("F.hardswish(x)", "x = 3"): ([(1,), (1.5,)], 3, (1,)),
    ("F.hardshrink(x, 0.5)", "x = 0.5"): ([(0,), (1,)], 4, None, "a free choice"),
    ("torch.quantile(x, 0.0)", "x = (1, 1, 1, 1)"): (
        EACH_OF_FOUR,
        3,
        (0.25, 0.25, 0.25, 0.25),
        "not of least norm",
    ),
    (RANKING, "x = 1, c = 0"): ([(-1,), (0,)], 2, (0,), CHANGED),
    (EMBEDDING, "x = 1, c = 0"): ([(-1,), (0,)], 2, (0,), CHANGED),
}


def test_what_is_documented_and_measured(rows):
    for key, (limits, rule, expected, *verdicts) in KNOWN.items():
        row = rows[key]
        assert (row.limits, row.rule, row.expected) == (limits, rule, expected), key
        assert verdicts in ([], [row.verdict]), key
    assert rows["torch.clamp(x, 0, 6)", "x = 0"].measured == [(float(OLD),)]
    assert rows[RANKING, "x = 1, c = 0"].measured == [(-float(OLD) + 0.0,)]
    # 2.14 also changed which of the equal elements it is.
    quantile = rows["torch.quantile(x, 0.0)", "x = (1, 1, 1, 1)"]
    assert (quantile.measured == [(1, 0, 0, 0)]) == OLD


def test_nan(rows):
    assert rows["F.relu(x)", "x = 0"].nan == [(1.0,)]
    # A kernel whose vector body and tail disagree shows up as two values; either way 0 is one.
    assert (0.0,) in rows["F.hardtanh(x, -1.0, 1.0)", "x = -1"].nan


def test_what_is_around_it_changes_nothing(rows):
    """Under a pin it would measure our gradient."""
    for around in (clampgrad.pin("half"), torch.inference_mode()):
        with around:
            assert as_data(clampgrad.survey()) == as_data([*rows.values()])


def test_the_verdict_can_be_bad():
    limits = [(0.0,), (1.0,)]
    assert verdict([(0.0,), (1.0,)], (0.0,), limits) == "not of least norm"
    assert verdict([(1.5,)], (0.0,), limits) == "no subgradient"
    assert verdict([(float("nan"),)], None, limits) == "no subgradient"
    assert verdict([(0.0, 0.0)], (0.5, 0.5), [(1.0, 0.0), (0.0, 1.0)]) == "no subgradient"


def test_the_command(command, monkeypatch):
    """It prints a table, Markdown or JSON, each with every row. COLUMNS
    says how wide a table may be."""
    table, markdown, data = (command("survey", *o)[1] for o in ([], ["--markdown"], ["--json"]))
    monkeypatch.setenv("COLUMNS", "60")
    narrow = command("survey")[1]
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, table.splitlines()))
    data = json.loads(data)
    assert data["torch"] == torch.__version__
    assert len(data["rows"]) == markdown.count("\n| `") >= 35
    for row in data["rows"]:
        assert row["function"] in table and f"| `{row['function']}` |" in markdown
        assert row["verdict"] in table
    assert "not of least norm *" in table and "*: not what PyTorch documents." in table


def test_how_a_survey_is_shown(rows):
    survey = clampgrad.Survey([*rows.values()][:7])
    assert repr(survey) == f"<clampgrad.Survey: torch {torch.__version__}, 7 points; print it>"
    assert survey.table().text() in html.unescape(survey._repr_html_())
