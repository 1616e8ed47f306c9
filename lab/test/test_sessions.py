"""The record of what nox has run, and the table of docs/support.md."""

import json
import subprocess

import pytest

import records
from lab import sessions
from testing.processes import run_checked


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with an empty record; a function commits a file that has changed."""
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b")

    def commit(file):
        with (tmp_path / file).open("a") as written:
            written.write("x\n")
        run_checked(*git, "add", ".")
        run_checked(*git, "commit", "-q", "-m", "one more")
        return run_checked(*git, "rev-parse", "HEAD")[:8]

    for module, name in ((sessions, "ROOT"), (records, "FOLDER")):
        monkeypatch.setattr(module, name, tmp_path if name == "ROOT" else tmp_path / "records")
    run_checked("git", "-C", tmp_path, "init", "-q")
    (tmp_path / "records").mkdir()
    (tmp_path / "records/sessions.jsonl").write_text("{}\n")
    return commit


def record(tmp_path, commit, **results):
    """Records a report as nox writes one."""
    ran = [
        {"name": name, "signatures": [f"{name}(2.13.0)"], "result": result, "duration": 1.5}
        for name, result in results.items()
    ]
    (tmp_path / ".git/report.json").write_text(json.dumps({"result": 0, "sessions": ran}))
    sessions.record_report(tmp_path / ".git/report.json", commit)


def test_what_passed_counts_until_its_subject_changes(clone, tmp_path):
    """The package, or what else a session is about."""
    kinds = ("mock", "docs", "debian", "cuda")
    record(tmp_path, clone("setup.py"), **dict.fromkeys(kinds, "success"))
    rows = sessions.read_rows().values()
    assert all(map(sessions.is_current, rows))
    for changed, left in (
        ("test_of_it.py", ["mock", "docs", "debian", "cuda"]),
        ("README.md", ["mock", "debian", "cuda"]),
        ("patches", ["mock", "cuda"]),
        ("python", ["cuda"]),
        ("setup.py", []),
    ):
        clone(changed)
        assert [row["session"].split("(")[0] for row in rows if sessions.is_current(row)] == left
    (row, *_) = rows
    assert not sessions.is_current({**row, "commit": "c0ffee00"})


def test_a_failure_is_not_current(clone, tmp_path):
    record(tmp_path, clone("setup.py"), tests="failed")
    (row,) = sessions.read_rows().values()
    assert not row["passed"] and not sessions.is_current(row)


def test_a_result_is_of_the_commit_at_the_start(clone, tmp_path, capsys):
    start = clone("setup.py")
    clone("README.md")  # while the sessions run
    record(tmp_path, start, tests="success", docs="success")
    assert {row["commit"] for row in sessions.read_rows().values()} == {start}
    assert [*sessions.read_rows()] == ["tests(2.13.0)"]
    assert capsys.readouterr().out.endswith("changed meanwhile: docs(2.13.0)\n")


def test_sessions_run_on_a_commit(clone, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(sessions, "run_nox", lambda *words: ran.append(words) or 1)
    clone("setup.py")
    with pytest.raises(SystemExit, match="1"):
        sessions.run_sessions("-s", "lint")
    assert ran == [("-s", "lint", "--report", str(tmp_path / "out/nox.json"))]
    (tmp_path / "setup.py").write_text("changed")
    with pytest.raises(SystemExit, match="git status"):
        sessions.run_sessions("-s", "lint")


def test_the_last_run_of_a_session_is_recorded(clone, tmp_path):
    """With its commit; what was skipped has not run."""
    record(tmp_path, clone("setup.py"), tests="success", portable="failed")
    first = sessions.read_rows()
    record(tmp_path, clone("page.md"), tests="skipped", portable="success")
    now = sessions.read_rows()
    assert now["tests(2.13.0)"] == first["tests(2.13.0)"]
    assert not first["portable(2.13.0)"]["passed"] and now["portable(2.13.0)"]["passed"]
    assert first["portable(2.13.0)"]["commit"] != now["portable(2.13.0)"]["commit"]


def test_the_table_says_what_failed(clone, tmp_path):
    at = clone("setup.py")
    record(tmp_path, at, tests="success", portable="failed", cpp="failed")
    table = sessions.support()
    assert f"| 2.13.0 | passed at `{at}` | **failed** at `{at}` | not run |" in table
    assert f"**failed** `{at}`: `cpp` 2.13.0." in table


def test_a_release_lacks_what_has_not_passed(clone, tmp_path, monkeypatch):
    listed = json.dumps([{"session": s} for s in ("tests(2.13.0)", "lint", "gpu(cuda)")])
    record(tmp_path, clone("setup.py"), tests="success")
    monkeypatch.setattr(subprocess, "check_output", lambda *words, **keywords: listed)
    assert sessions.find_missing() == ["lint"]
