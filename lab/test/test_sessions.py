"""The record of what nox has run, and the table of docs/support.md."""

import json
import subprocess

import pytest

import records
from common import run_checked
from lab import sessions


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with an empty record; a function commits a file that has changed."""
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b")

    def commit(file):
        with (tmp_path / file).open("a") as written:
            written.write("x\n")
        run_checked(*git, "add", ".")
        run_checked(*git, "commit", "-q", "-m", "one more")

    for module, name in ((sessions, "ROOT"), (records, "FOLDER")):
        monkeypatch.setattr(module, name, tmp_path if name == "ROOT" else tmp_path / "records")
    run_checked("git", "-C", tmp_path, "init", "-q")
    (tmp_path / "records").mkdir()
    (tmp_path / "records/sessions.jsonl").write_text("{}\n")
    commit("setup.py")
    return commit


def report(tmp_path, **results):
    """As nox writes one."""
    ran = [
        {"name": name, "signatures": [f"{name}(2.13.0)"], "result": result, "duration": 1.5}
        for name, result in results.items()
    ]
    (tmp_path / ".git/report.json").write_text(json.dumps({"result": 0, "sessions": ran}))
    return tmp_path / ".git/report.json"


def test_what_passed_counts_until_the_package_changes(clone, tmp_path):
    sessions.record_report(report(tmp_path, tests="success"))
    (row,) = sessions.read_rows().values()
    assert sessions.is_current(row) and not sessions.is_current({**row, "passed": False})
    clone("page.md")  # as one does to mend a test
    assert sessions.is_current(row)
    clone("setup.py")
    assert not sessions.is_current(row) and not sessions.is_current({**row, "commit": "c0ffee00"})


def test_the_last_run_of_a_session_is_recorded(clone, tmp_path):
    """With its commit; what was skipped has not run."""
    sessions.record_report(report(tmp_path, tests="success", portable="failed"))
    first = sessions.read_rows()
    clone("page.md")
    sessions.record_report(report(tmp_path, tests="skipped", portable="success"))
    now = sessions.read_rows()
    assert now["tests(2.13.0)"] == first["tests(2.13.0)"]
    assert not first["portable(2.13.0)"]["passed"] and now["portable(2.13.0)"]["passed"]
    assert first["portable(2.13.0)"]["commit"] != now["portable(2.13.0)"]["commit"]
    (tmp_path / "setup.py").write_text("changed")
    with pytest.raises(SystemExit, match="git status"):
        sessions.record_report(report(tmp_path, tests="success"))


def test_the_table_says_what_failed(clone, tmp_path):
    sessions.record_report(report(tmp_path, tests="success", portable="failed", cpp="failed"))
    at = sessions.read_rows()["cpp(2.13.0)"]["commit"]
    shown = sessions.support()
    assert f"| 2.13.0 | passed at `{at}` | **failed** at `{at}` | not run |" in shown
    assert f"**failed** `{at}`: `cpp` 2.13.0." in shown


def test_a_release_lacks_what_has_not_passed(clone, tmp_path, monkeypatch):
    listed = json.dumps([{"session": s} for s in ("tests(2.13.0)", "lint", "gpu(cuda)")])
    sessions.record_report(report(tmp_path, tests="success"))
    monkeypatch.setattr(subprocess, "check_output", lambda *words, **keywords: listed)
    with pytest.raises(SystemExit, match="this package: lint$"):
        sessions.main()
