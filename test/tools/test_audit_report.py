"""The report of an audit: a first sentence with the answer, distinct
rows, and everything as JSON."""

import html
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
from clampgrad._tools.audit.callers import shorten_path
from clampgrad._tools.audit.finding import RELEASES
from clampgrad._tools.audit.text import COLUMNS, DECIDED, NOT_DECIDED, make_cells
from testing.releases import RELEASED

CHANGED, NOT_CHANGED = (heading.format("2.11", "2.15") for heading in (DECIDED, NOT_DECIDED))
OTHER = "joint" if RELEASED == "inclusive" else "inclusive"  # than that of the installed torch


def leaf(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def audited(*calls):
    """The report on calls, each of which is differentiated."""
    with clampgrad.audit() as report:
        for call in calls:
            call().sum().backward()
    return report


def clamp():
    return leaf(0.0, 1.0).clamp(min=0)


def relu():
    return F.relu(leaf(0.0, 1.0))


def test_where_the_release_decides():
    """The answer comes first, then a table of what the release decides
    and one of what it does not."""
    report = audited(clamp, relu, lambda: leaf(0.5).clamp(0, 1))
    text = str(report)
    first = " ".join(text.partition("\n\n")[0].splitlines())
    assert first == report.summary() == report.as_data()["summary"]
    where = f"clamp at {report.place(__file__, clamp.__code__.co_firstlineno + 1)}"
    assert first.startswith(
        f"Between 2.11 and 2.15 the gradient of 1 call changed: {where}; a pin restores it. Most at "
    )
    assert 0 < text.index(CHANGED) < text.index(NOT_CHANGED)
    assert repr(report) == "<clampgrad.Report: 3 call sites, 1 warning; print it>"
    assert report.text() in html.unescape(report._repr_html_())


def test_the_release_decides_whether_an_infinite_gradient_passes():
    """The guard in front of a square root: NaN in a parameter on one release, 0 on another."""
    report = audited(lambda: clamp().sqrt())
    (finding,) = report
    assert finding.by_release == (float("inf"), OTHER) and finding.not_finite[OTHER] == 1
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
    decided, rest = report.summary().split(
        ". Another exact convention would change the gradient at "
    )
    assert f"{OTHER}, the gradient {RELEASES[OTHER]}, would move it" in decided
    assert rest.startswith("2 more, most at")
    above, below = str(report).partition(CHANGED)[2].split(NOT_CHANGED)
    assert "\nclamp " in above and "relu" not in above and "\nrelu " in below


def test_the_release_decides_nothing():
    report = audited(relu, lambda: F.relu6(leaf(0.0, 1.0)))
    assert report.summary().startswith(
        "Between 2.11 and 2.15 the gradient did not change at any of the 2 calls that a gradient "
        "reached. Another exact convention would change the gradient at all 2 call sites, most at "
    )
    assert NOT_CHANGED in str(report) and CHANGED not in str(report)
    report = audited(lambda: leaf(0.5, 2.0).clamp(0, 1))
    assert "No other exact convention would change the gradient" in report.summary()
    assert report.summary().endswith("No warnings.")
    assert "restoring" in next(iter(report)).moved and "restoring" not in str(report)
    with clampgrad.audit() as report:
        clamp()
    assert report.summary().startswith("No gradient reached the only call site")
    assert "Blank there" in str(report) and "Blank there" not in str(audited(clamp))
    with clampgrad.audit() as report:
        torch.zeros(3).clamp(0, 1)
    assert report.summary().startswith(
        "Between 2.11 and 2.15 the gradient did not change: none was recorded at the only call."
    )
    with clampgrad.audit() as report:
        torch.empty(0, 3).clamp(0, 1)
    assert report.summary() == "No call of the clamp family was seen." and not report.skipped


def test_a_row_for_each_site():
    """Whatever the dtype, the bounds, and whether it is recorded: one row, which adds them up."""
    tensor = torch.zeros(2, dtype=torch.bfloat16)
    with clampgrad.audit() as report:
        for x, bound in (leaf(0.0, 1.0), 0.0), (leaf(1.0, 1.0, dtype=torch.bfloat16), tensor):
            for recorded in (True, False):
                with torch.set_grad_enabled(recorded):
                    y = clampgrad.clamp(x, min=bound, gradient="inclusive")
                if recorded:
                    y.sum().backward()
    (finding,) = report
    assert (finding.calls, finding.recorded, finding.elements, finding.at_bound) == (4, 2, 8, 2)
    assert finding.moved["min_norm"] == 0.5  # one gradient of four
    assert finding.dtypes == ["float32", "bfloat16"]
    assert finding.bounds == [["0", ""], ["Tensor", ""]]
    assert "float32, bfloat16" in str(report) and "[0, ] [Tensor, ]" in str(report)


def test_a_row_for_each_gradient():
    """A pin is not named where it changes nothing, and an alias is named as its convention."""
    calls = [clampgrad.pin(pin)(f) for pin in (None, "half") for f in (clamp, relu)]
    report = audited(*calls, lambda: clampgrad.clamp(leaf(0.0), 0, 1, gradient="jax"))
    rows = sorted(f"{f.function}: {f.gradient}" for f in report)
    assert rows == ["clamp: half", "clamp: torch", "clampgrad.clamp: half", "relu: torch"]


def test_a_schedule_of_bounds_is_no_list_of_them():
    with clampgrad.audit() as report:
        for step in range(100):
            leaf(0.0).clamp(0, 1 - step / 1000)
    (finding,) = report
    assert finding.calls == 100 and len(finding.bounds) == 8
    assert "8 or more pairs" in str(report)


def test_harmless_ties_come_last():
    """The first step of PPO: both sides of its minimum are equal and differentiated, and share."""
    ratio = torch.ones(4).mul(leaf(1.0))
    ppo = lambda: torch.min(ratio * 2, ratio.clamp(0.8, 1.2) * 2)  # noqa: E731
    first, *_, last = audited(ppo, clamp, lambda: leaf(0.5).clamp(0, 1))
    assert first.farthest[0] > 0 and (last.function, last.farthest[0]) == ("min", 0)
    assert last.at_bound == last.elements == 4


def test_a_narrow_terminal_shows_records():
    """Every line fits, and nothing of the table is lost."""
    report = audited(lambda: nn.Sequential(nn.Hardtanh(0, 1), nn.ReLU())(leaf(0.0, 0.5)), clamp)
    text = report.text(40)
    assert max(map(len, text.splitlines())) <= 40 < max(map(len, report.text().splitlines()))
    words = " ".join(text.split())
    for finding in report:
        for name, cell in zip(COLUMNS[2:], make_cells(finding, report.place)[2:]):
            assert not cell or f"{name}: {cell}" in words


def test_paths_from_where_one_stands(monkeypatch):
    here = str(Path(__file__).parents[2])
    monkeypatch.chdir(here)
    report = audited(clamp)
    monkeypatch.chdir("/")  # the program goes elsewhere
    assert "test/tools/test_audit_report.py:" in str(report) and here not in str(report)
    assert shorten_path(torch.__file__, here) == "torch/__init__.py"
    assert shorten_path("/elsewhere/f.py", here) == "/elsewhere/f.py"


@pytest.mark.parametrize(
    "f, g",
    [
        (lambda x: x.double().clamp(0, torch.inf).sqrt(), 1e200),  # its square is infinite
        (lambda x: x.clamp(0, torch.nan), torch.nan),
        (lambda x: torch.maximum(x.half(), torch.tensor(1e9)), torch.inf),
    ],
)
def test_json_without_infinities(f, g, tmp_path):
    report = audited(lambda: f(leaf(0.0, 0.5)) * g)
    report.save(tmp_path / "audit.json")
    (site,) = json.loads((tmp_path / "audit.json").read_text())["sites"]
    assert all(w["message"] and w["evidence"] for w in site["warnings"])
    assert bool(site["remedy"]) == bool(site["warnings"])


def test_json_has_what_the_report_has_as_numbers(tmp_path):
    with clampgrad.audit(every=2) as report:
        for _ in range(2):
            clamp().sum().backward()
        torch.empty(3, device="meta").clamp(0, 1)
        clampgrad.clamp(leaf(0.0), 0, 1, gradient="half").sum().backward()
    report.save(tmp_path / "audit.json")
    data = json.loads((tmp_path / "audit.json").read_text())
    keys = ["torch", "patched", "summary", "compared", "every", "sites", "suspects", "skipped"]
    assert [*data] == keys
    assert data["every"] == 2 and (data["compared"][0], data["compared"][-1]) == ("2.11", "2.15")
    assert data["skipped"] == {"meta tensors": 1} and "1 (meta tensors)" in str(report)
    assert data["sites"] == json.loads(json.dumps([asdict(finding) for finding in report]))
    assert {site["calls"] for site in data["sites"]} == {1} and data["suspects"] == []


def test_a_bound_without_dimensions_is_a_tensor_beside_another():
    """A tie with it is shared under joint, where a tie with a number gives 0."""
    (finding,) = audited(lambda: leaf(0.0).clamp(torch.tensor(0.0), torch.ones(1)))
    assert finding.bounds == [["Tensor", "Tensor"]]
    assert finding.moved[OTHER] == (0.5 if OTHER == "joint" else 1)


def test_a_call_that_maximises_is_examined_as_one():
    """It passes the gradient that with_grad blocks where the loss is minimised."""
    ascent = lambda: clampgrad.clamp(leaf(-1.0), 0, gradient="with_grad", maximize=True)  # noqa: E731
    (finding,) = audited(ascent)
    assert finding.gradient == "with_grad" and finding.moved["min_norm"] == 1


def test_a_line_is_warned_of_once_for_each_of_its_dangers():
    """Fifty layers are fifty rows, but one line of code, with one
    advice. Here both bounds round."""
    model = nn.Sequential(*(nn.Hardtanh(-1 + 1e-6, 1 - 1e-6) for _ in range(5)))
    report = audited(lambda: model(leaf(0.5, dtype=torch.bfloat16)))
    assert len(report) == 5 and all(len(f.warnings) == 2 for f in report)
    text = " ".join(str(report).split())
    assert "(hardtanh in Sequential.0, Sequential.1, Sequential.2 and 2 more): bound-" in text
    assert (text.count("bound-rounds: "), text.count("Advice: ")) == (2, 1)
    assert "Warnings: 2, at" in report.summary()


@pytest.mark.skipif(RELEASED != "inclusive", reason="the page shows PyTorch up to 2.13")
def test_the_example_of_the_page(tmp_path, monkeypatch):
    """docs/audit.md shows the beginning of the report on its first program."""
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    script = tmp_path / "train.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    with clampgrad.audit() as report:
        exec(compile(script.read_text(), script, "exec"), {"__name__": "__main__"})
    text = str(report).partition(f"\n\n{CHANGED}")[0] + "\n"
    assert text == page.partition("```text\n")[2].partition("```")[0]
