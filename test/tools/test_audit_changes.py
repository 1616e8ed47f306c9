"""What a release of PyTorch changed in a program: the audit names exactly those calls, and a pin
restores what it says."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from clampgrad._contract.changes import CHANGES, COMPARED, Change, minor
from clampgrad._tools.audit.suspects import CONDITIONS
from testing.audited import PROGRAMS
from testing.releases import RELEASED

HERE = minor(torch.__version__)


def audited(program, between=None):
    with clampgrad.audit(between=between) as report:
        program.run()
    assert not report.skipped, report.skipped
    return report


def changed_and_suspects(report):
    return (
        {f.function for f in report if f.by_release[0]},
        {(s.function, s.change) for s in report.suspects},
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_exactly_what_changed_is_named(name):
    program = PROGRAMS[name]
    report = audited(program)
    assert changed_and_suspects(report) == (program.changed, program.suspects)
    first = report.summary().partition(". ")[0]
    assert all(f"{function} at " in first for function in program.changed)
    assert ("changed: " in first) == bool(program.changed)
    for function, change in program.suspects:
        assert f"{function} at " in report.summary()
        assert CHANGES[change].what in report.summary()
        assert CHANGES[change].condition in " ".join(str(report).split())


@pytest.mark.parametrize("between", [("2.11", "2.13"), ("2.13", "2.14"), ("2.15", "2.14")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_releases_are_compared(name, between):
    program = PROGRAMS[name]
    report = audited(program, between)
    changed = program.changed if between == ("2.13", "2.14") else set()
    suspects = {s for s in program.suspects if CHANGES[s[1]].is_between(between)}
    assert changed_and_suspects(report) == (changed, suspects)
    assert "conventions-differ" not in str(report) or changed
    earlier, later = sorted(between)
    if len(report):
        assert report.summary().startswith(f"Between {earlier} and {later} the gradient ")


def same(tensors, others):
    return len(tensors) == len(others) and all(
        torch.equal(a.nan_to_num(77), b.nan_to_num(77)) for a, b in zip(tensors, others)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pin_restores_what_it_says(name):
    """To the bit; and nothing else is touched."""
    program = PROGRAMS[name]
    with clampgrad.pin("inclusive"):
        pinned = program.run()
    stock = program.run()
    if program.changed:
        before = [torch.tensor(values) for values in program.before]
        assert same(pinned, before)
        assert same(stock, before) == (RELEASED == "inclusive")
        assert not any(CHANGES[change].pin for _, change in program.suspects)
    else:
        assert same(pinned, stock)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pinned_program_has_no_call_that_changed(name):
    with clampgrad.pin("inclusive"):
        report = audited(PROGRAMS[name])
    assert changed_and_suspects(report) == (set(), PROGRAMS[name].suspects)


def test_what_was_taken_back():
    """fmax at NaN, in 2.14 alone."""

    def program():
        x = torch.tensor([torch.nan, 1.0], requires_grad=True)
        torch.fmax(x, torch.zeros(2)).sum().backward()

    for between, count in {("2.13", "2.14"): 1, ("2.14", "2.15"): 1, ("2.13", "2.15"): 0}.items():
        with clampgrad.audit(between=between) as report:
            program()
        assert [s.change for s in report.suspects] == ["extrema-nan"] * count
        assert ("in 2.14 alone" in report.summary()) == bool(count)


# ---- The condition -------------------------------------------------------------------------------


def quantile(x, *args, **keywords):
    x = torch.tensor(x, requires_grad=True)
    with clampgrad.audit() as report:
        getattr(torch, keywords.pop("name", "quantile"))(x, *args, **keywords)
    return [s.met for s in report.suspects]


NAN = torch.nan


@pytest.mark.parametrize(
    "x, q, keywords, is_tied",
    [
        ([1.0, 1.0, 2.0, 3.0], 0.0, {}, True),
        ([1.0, 1.0, 2.0, 3.0], 1.0, {}, False),
        ([1.0, 1.0, 2.0, 3.0], 0.5, {}, True),
        ([1.0, 1.0, 2.0, 3.0], 0.7, {}, False),
        ([1.0, 1.0, 2.0, 3.0], torch.tensor([0.7, 0.1]), {}, True),
        ([[1.0, 1.0], [2.0, 3.0]], 0.5, {"dim": 1}, True),
        ([[1.0, 1.0], [2.0, 3.0]], 0.5, {"dim": 0}, False),
        ([[1.0, 1.0], [2.0, 3.0]], 0.5, {"dim": 0, "keepdim": True}, False),
        ([1.0, 2.0, NAN, NAN], 1.0, {"name": "nanquantile"}, False),
        ([2.0, 2.0, NAN, NAN], 1.0, {"name": "nanquantile"}, True),
        ([NAN, NAN], 0.5, {"name": "nanquantile"}, False),
        ([1.0], 0.5, {}, False),
    ],
)
def test_ties_in_a_quantile(x, q, keywords, is_tied):
    assert quantile(x, q, **keywords) == [True] * is_tied


def test_the_condition_cannot_be_seen():
    """Under vmap no value can be asked for."""
    with clampgrad.audit() as report:
        x = torch.ones(2, 3)
        torch.vmap(torch.func.grad(lambda x: torch.quantile(x, 0.5)))(x)
        mask = torch.ones(2, 2, dtype=torch.bool)
        F.scaled_dot_product_attention(*[torch.ones(1, 2, 8)] * 3, attn_mask=mask)
    assert [s.met for s in report.suspects] == [None, None]
    assert "2 calls may differ: quantile at " in report.summary()
    assert " ".join(str(report).split()).count("; which could not be seen, in 1 call.") == 2


def test_an_error_from_a_release_on():
    """torch.cholesky, where there is one."""
    if not hasattr(torch, "cholesky"):
        pytest.skip("this torch has none")
    with clampgrad.audit() as report:
        try:
            torch.cholesky(torch.eye(2))
        except RuntimeError:
            pytest.skip("it raises")
    assert "cholesky" in report.summary() and "since 2.14 an error" in report.summary()


def test_a_release_that_was_not_compared(monkeypatch):
    report = audited(PROGRAMS["pinball"])
    assert "was not compared" not in report.summary()
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    assert "PyTorch 2.99, which runs here, was not compared." in report.summary()


# ---- The table -----------------------------------------------------------------------------------


def test_the_table():
    """Every row that names calls has a condition that is looked at, or is looked at elsewhere."""
    elsewhere = {"muon-bfloat16"}
    assert {c.id for c in CHANGES.values() if c.calls} == CONDITIONS.keys() - {
        "extrema-nan"
    } | elsewhere
    assert all(c.since in COMPARED and c.until in (*COMPARED, "") for c in CHANGES.values())
    listed = (Path(__file__).parents[2] / "torch_releases.txt").read_text().split()
    assert tuple(map(minor, listed)) == COMPARED


def test_between_releases():
    change = Change("", "2.14", "silent", "", "", "", None, [], until="2.15")
    assert [change.has(r) for r in COMPARED] == [False, False, False, True, False]
    assert change.is_between(COMPARED) and not change.is_between(("2.13", "2.15"))


@pytest.mark.parametrize("between", [("2.13", "2.13"), ("2.13", "9.9"), ("2.13.0", "2.13.1")])
def test_releases_that_cannot_be_compared(between):
    with pytest.raises(ValueError, match="audit: two releases of 2.11, 2.12, .* can be compared"):
        clampgrad.audit(between=between)


def test_the_command(folder_of_programs, command):
    script = Path("train.py")
    script.write_text(
        "import torch\nx = torch.ones(4, requires_grad=True)\ntorch.quantile(x, 0.3).backward()\n"
    )
    code, _, err = command("audit", "--from", "2.13", "--to", "2.14.1", "--json", "a.json", script)
    assert not code and "1 call may differ: quantile at train.py:3" in err
    data = json.loads(Path("a.json").read_text())
    assert data["compared"] == ["2.13", "2.14"]
    assert [(s["change"], s["met"], s["line"]) for s in data["suspects"]] == [
        ("quantile-ties", True, 3)
    ]
    _, _, err = command("audit", "--from", "2.14", "--to", "2.15", script)
    assert "quantile" not in err
    other = "2.11" if HERE != "2.11" else "2.12"
    _, _, err = command("audit", "--to", other, "--json", "a.json", script)
    assert set(json.loads(Path("a.json").read_text())["compared"]) == {HERE, other}
    code, _, err = command("audit", "--from", "1.0", script)
    assert code == 2 and "1.0 is none of them" in err


UNSIGNED = {
    "as usual": lambda x: torch.clamp(x, -1, 3),
    "out=": lambda x: torch.clamp(x, -1, 3, out=torch.empty_like(x)),
    "in inference mode": torch.inference_mode()(lambda x: x.clamp_min(-1)),
    "out= in inference mode": torch.inference_mode()(
        lambda x: torch.clamp_min(x, -1, out=torch.empty_like(x))
    ),
}


@pytest.mark.parametrize("form", UNSIGNED)
def test_a_call_that_no_kernel_tells_of(form):
    with clampgrad.audit() as report:
        UNSIGNED[form](torch.ones(2, dtype=torch.uint8))
        UNSIGNED[form](torch.ones(2))
    (suspect,) = report.suspects
    assert (suspect.change, suspect.calls) == ("clamp-unsigned", 1) and suspect.met
    assert suspect.file == __file__ and suspect.function in ("clamp", "clamp_min")


def test_a_call_that_two_levels_announce_is_one():
    """That of forward mode, which has no tangent of it, and the one that records its gradient."""
    x, one = torch.ones(1, requires_grad=True), torch.ones(1)
    with clampgrad.audit() as report:
        torch.func.jvp(lambda t: torch.maximum(x, one) * t, (one,), (one,))
    (suspect,), (finding,) = report.suspects, report
    assert (suspect.change, suspect.calls, finding.recorded) == ("extrema-tangent", 1, 1)
