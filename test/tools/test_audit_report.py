"""The report of an audit: a first sentence with the answer, distinct rows, and everything as JSON."""

import html
import json
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
from clampgrad._tools.audit.callers import short
from clampgrad._tools.audit.finding import RELEASES
from clampgrad._tools.audit.text import COLUMNS, DECIDED, NOT_DECIDED, cells
from common import RELEASED

OTHER = "joint" if RELEASED == "inclusive" else "inclusive"  # than that of the installed torch


def leaf(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def audited(*calls, **keywords):
    """The report on calls, each of which is differentiated."""
    with clampgrad.audit(**keywords) as report:
        for call in calls:
            call().sum().backward()
    return report


def clamp():
    return leaf(0.0, 1.0).clamp(min=0)


def relu():
    return F.relu(leaf(0.0, 1.0))


class Clamp(nn.Module):
    def forward(self, x):
        return torch.clamp(x, -1 + 1e-6, 1 - 1e-6)


class Beside(nn.Sequential):
    """Not one behind another, where the last alone may get a gradient at its bounds."""

    def forward(self, x):
        return sum(layer(x) for layer in self)


def test_where_the_release_decides():
    """The answer comes first, then a table of what the release decides and one of what it does not."""
    report = audited(clamp, relu, lambda: leaf(0.5).clamp(0, 1))
    text = str(report)
    first = " ".join(text.partition("\n\n")[0].splitlines())
    assert first == report.summary() == report.as_data()["summary"]
    assert first.startswith("The release of PyTorch decides the gradient at 1 of the 3 call sites")
    assert 0 < text.index(DECIDED) < text.index(NOT_DECIDED)
    assert repr(report) == "<clampgrad.Report: 3 call sites, 1 warning; print it>"
    assert report.text() in html.unescape(report._repr_html_())


def test_the_release_decides_whether_an_infinite_gradient_passes():
    """The guard in front of a square root: NaN in a parameter on one release, 0 on another."""
    report = audited(lambda: clamp().sqrt())
    (found,) = report
    assert found.by_release == (float("inf"), OTHER) and found.not_finite[OTHER] == 1
    does = "block" if OTHER == "joint" else "pass on"
    assert f"{RELEASES[OTHER]}, would {does} 1 infinite or NaN gradient." in report.summary()


def test_what_the_release_decides_comes_first():
    """Of the others one would move further, but no upgrade changes it."""
    report = audited(
        lambda: F.relu(leaf(0.0, 0.0, 1e-3)),
        lambda: leaf(0.0, 1.0, 1.0, 1.0, 1.0).clamp(min=0),
        clampgrad.pin("half")(clamp),
    )
    first, *others = report
    assert (first.function, first.by_release[1]) == ("clamp", OTHER)
    assert [f.by_release for f in others] == [(0, "")] * 2
    assert others[0].farthest[0] > first.farthest[0]
    decided, rest = report.summary().split(". No release of PyTorch changed the gradient at ")
    assert f"{OTHER}, the gradient {RELEASES[OTHER]}, would move it" in decided
    assert rest.startswith("2 more, where")
    above, below = str(report).partition(DECIDED)[2].split(NOT_DECIDED)
    assert "\nclamp " in above and "relu" not in above and "\nrelu " in below


def test_the_release_decides_nothing():
    report = audited(relu)
    assert report.summary().startswith("No release of PyTorch changed the gradient at the only")
    assert NOT_DECIDED in str(report) and DECIDED not in str(report)
    report = audited(lambda: leaf(0.5, 2.0).clamp(0, 1))
    assert report.summary().startswith("No other exact convention would change the gradient")
    assert report.summary().endswith("No warnings.")
    assert "restoring" in next(iter(report)).moved and "restoring" not in str(report)
    with clampgrad.audit() as report:
        clamp()
    assert report.summary().startswith("No gradient reached the only call site")
    assert "Blank there" in str(report) and "Blank there" not in str(audited(clamp))
    with clampgrad.audit() as report:
        torch.empty(0, 3).clamp(0, 1)
    assert report.summary() == "No call of the clamp family was seen." and not report.skipped


def test_a_row_for_each_site():
    """Whatever the dtype, the bounds, and whether it is recorded: one row, which names them all."""
    dtypes, bounds = (torch.float32, torch.bfloat16), (0.0, torch.zeros(2))
    with clampgrad.audit() as report:
        for dtype, bound, grad in product(dtypes, bounds, (True, False)):
            with torch.set_grad_enabled(grad):
                y = torch.clamp(leaf(0.0, 1.0, dtype=dtype), min=bound)
            if grad:
                y.sum().backward()
    (found,) = report
    assert (found.calls, found.recorded, found.elements, found.at_bound) == (8, 4, 16, 8)
    assert found.dtypes == ["float32", "bfloat16"]
    assert found.bounds == [["0", ""], ["Tensor", ""]]
    row = next(line for line in str(report).splitlines() if line.startswith("clamp "))
    assert "float32, bfloat16" in row and "[0, ] [Tensor, ]" in row


def test_a_row_for_each_gradient():
    """A pin is not named where it changes nothing, and an alias is named as its convention."""
    calls = [clampgrad.pin(pin)(f) for pin in (None, "half") for f in (clamp, relu)]
    report = audited(*calls, lambda: clampgrad.clamp(leaf(0.0), 0, 1, gradient="jax"))
    found = sorted(f"{f.function}: {f.gradient}" for f in report)
    assert found == ["clamp: half", "clamp: torch", "clampgrad.clamp: half", "relu: torch"]


def test_variants_are_added_up():
    """The norm is taken over all calls, not only over those of the last variant."""

    with clampgrad.audit() as report:
        for dtype, *numbers in (torch.float32, 0.0, 0.5), (torch.float64, 0.5, 0.5):
            x = leaf(*numbers, dtype=dtype)
            clampgrad.clamp(x, 0, 1, gradient="inclusive").sum().backward()
    (found,) = report
    assert found.moved["min_norm"] == 0.5


def test_a_schedule_of_bounds_is_no_list_of_them():
    with clampgrad.audit() as report:
        for step in range(100):
            leaf(0.0).clamp(0, 1 - step / 1000)
    (found,) = report
    assert found.calls == 100 and len(found.bounds) == 8
    assert "8 or more pairs" in str(report)


def test_harmless_ties_come_last():
    """The first step of PPO: both sides of its minimum are equal and differentiated, and share."""
    ratio = torch.ones(4).mul(leaf(1.0))
    advantage = torch.tensor([1.0, -1.0, 2.0, 3.0])
    with clampgrad.audit() as report:
        clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
        loss = torch.min(ratio * advantage, clipped).sum()
        (loss + leaf(0.0, 1.0).clamp(0, 2).sum()).backward()
        leaf(0.5).clamp(0, 1)
    findings = list(report)
    assert [f.function for f in findings] == ["clamp", "clamp", "clamp", "min"]
    assert findings[0].farthest[0] > 0 and findings[-1].farthest[0] == 0
    assert findings[-1].at_bound == findings[-1].elements == 4


@pytest.mark.parametrize("width", [40, 100])
def test_a_narrow_terminal_shows_records(width):
    """Every line fits, and nothing of the table is lost."""
    report = audited(lambda: nn.Sequential(Clamp(), nn.ReLU())(leaf(0.0, 0.5)).sqrt(), clamp)
    text = report.text(width)
    assert max(map(len, text.splitlines())) <= width < max(map(len, report.text().splitlines()))
    words = " ".join(text.split())
    for found in report:
        for name, cell in zip(COLUMNS[2:], cells(found, report.place)[2:]):
            assert not cell or f"{name}: {cell}" in words


def test_paths_from_where_one_stands(monkeypatch):
    here = str(Path(__file__).parents[2])
    monkeypatch.chdir(here)
    report = audited(clamp)
    monkeypatch.chdir("/")  # the program goes elsewhere
    assert "test/tools/test_audit_report.py:" in str(report) and here not in str(report)
    packages = Path(torch.__file__).parent.parent
    assert short(torch.__file__, here) == "torch/__init__.py"
    assert short(torch.__file__, str(packages / "torch")) == "__init__.py"
    assert short("/elsewhere/f.py", here) == "/elsewhere/f.py"


@pytest.mark.parametrize("f, g", [
    (lambda x: x.double().clamp(0, 1), 1e200),  # its square is infinite
    (lambda x: x.clamp(0, torch.nan), torch.nan),
    (lambda x: torch.maximum(x.half(), torch.tensor(1e9)), torch.inf),
    (lambda x: x.clamp(0, torch.inf).sqrt(), 1.0),
])  # fmt: skip
def test_json_without_infinities(f, g, tmp_path):
    report = audited(lambda: f(leaf(0.0, 0.5)) * g)
    report.save(tmp_path / "audit.json")
    (site,) = json.loads((tmp_path / "audit.json").read_text())["sites"]
    assert site["calls"] == 1
    assert all(w["message"] and w["evidence"] for w in site["warnings"])
    assert bool(site["remedy"]) == bool(site["warnings"])


def test_a_line_is_warned_of_once_for_each_of_its_dangers():
    """Fifty layers are fifty rows, but one line of code, with one advice. Here both bounds round."""
    model = Beside(*(Clamp() for _ in range(5)))
    report = audited(lambda: model(leaf(-1.0, 0.5, 1.0, dtype=torch.bfloat16)))
    assert len(report) == 5 and all(len(f.warnings) == 3 for f in report)
    text = " ".join(str(report).split())
    assert "(clamp in Beside.0, Beside.1, Beside.2 and 2 more): bound-rounds: " in text
    counts = [
        text.count(f"{words}: ") for words in ("bound-rounds", "conventions-differ", "Advice")
    ]
    assert counts == [2, 1, 1]
    assert "all 5 call sites" in report.summary() and "Warnings: 3, at" in report.summary()


@pytest.mark.skipif(RELEASED != "inclusive", reason="the page shows PyTorch up to 2.13")
def test_the_example_of_the_page(tmp_path, monkeypatch):
    """docs/audit.md shows the beginning of the report on its first program."""
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    script = tmp_path / "train.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    with clampgrad.audit() as report:
        exec(compile(script.read_text(), script, "exec"), {"__name__": "__main__"})
    shown = str(report).partition(f"\n\n{DECIDED}")[0] + "\n"
    assert shown == page.partition("```text\n")[2].partition("```")[0]
