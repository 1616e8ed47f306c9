"""`make release`: its steps, and what it does with them at one commit."""

import json
import re
from pathlib import Path

import pytest
import yaml

from buildtools.torch_here import RELEASES
from common import checked
from lab import release

ROOT = Path(__file__).parents[2]


def test_every_step_calls_what_exists():
    """A target of the Makefile, a module or a script."""
    targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    for step, line in release.steps().items():
        called = re.findall(r"(?:^|&& )make ([a-z0-9-]+)|-m lab\.(\w+)|(lab/\w+\.sh)", line)
        assert called, step
        for target, module, script in called:
            path = ROOT / (script or f"lab/{module}.py")
            assert target in targets if target else path.exists(), step
    assert {*release.NEEDS} <= {*release.steps()}


def test_the_workflow_tests_what_is_supported():
    """On each release of torch, and on each Python."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["torch"] == RELEASES
    pythons = [*matrix["python"], *(job["python"] for job in matrix["include"])]
    assert sorted(f"python{p}" for p in pythons) == sorted(release.PYTHONS)


def test_the_changelog_has_the_version():
    """The newest of its headings that names one."""
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    headings = re.findall(
        r"^## (\d\S*) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert headings[:1] in ([], [version])


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with one commit and three steps, and the command in it."""
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b")
    checked(*git, "init", "-q")
    (tmp_path / ".gitignore").write_text("out/\nbroken\n")
    checked(*git, "add", ".")
    checked(*git, "commit", "-qm", "one")
    lines = {"good": "echo x >> out/good", "bad": "test ! -e broken", "absent": "true"}
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "NEEDS", {"absent": "no-such-tool"})
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    monkeypatch.setattr(release.records, "commit", lambda: "abc1234")
    for name in ("PIP_CONSTRAINT", "RECORDS", "PYTHON"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_goes_on_where_it_was(clone, monkeypatch):
    """What has failed runs again, what has passed does not, and another
    commit starts from nothing."""
    (clone / "broken").touch()
    with pytest.raises(SystemExit, match="not passed: bad"):
        release.main()
    (clone / "broken").unlink()
    release.main()
    assert (clone / "out/good").read_text() == "x\n"
    found = release.ran(Path("out/release/abc1234"))
    assert {step: row.get("passed") for step, row in found.items()} == {
        "good": True, "bad": True, "absent": None,
    }  # fmt: skip
    assert "no-such-tool" in release.how(found["absent"])
    monkeypatch.setattr(release.records, "commit", lambda: "def5678")
    release.main("good")
    assert (clone / "out/good").read_text() == "x\nx\n"


def test_what_is_in_no_commit_is_refused(clone):
    (clone / "new").touch()
    with pytest.raises(SystemExit, match="git status"):
        release.main()


def test_what_installs_the_wheel_waits_for_it(clone, monkeypatch):
    """And dist/ that was made again since then does not count."""
    lines = {
        "artefacts": ": dist/; mkdir -p dist && date +%N > dist/a && cd dist && sha256sum a > SHA256SUMS"
    }
    lines["artefacts"] += " && cp SHA256SUMS ../out/release/abc1234"
    monkeypatch.setattr(release, "steps", lambda out="": lines | {"tests": "test -e dist/a"})
    (clone / ".git/info/exclude").write_text("dist\n")
    with pytest.raises(SystemExit, match="not passed: tests"):
        release.main("tests")
    release.main()
    release.main("tests")
    (clone / "dist/a").write_text("of another commit")
    with pytest.raises(SystemExit, match="not passed: tests"):
        release.main("tests")


def test_the_record_is_of_one_commit(clone, monkeypatch):
    """What was recorded before goes, but what ran on a GPU; what steps have measured comes in."""
    folder = clone / "out/records"
    monkeypatch.setattr(release.records, "FOLDER", folder)
    monkeypatch.setattr(release.records, "NEW", folder)
    ran = {"test_one": {"passed": 1, "failed": 0}}
    release.support.record({"2.13.0, compiled, cpu": ran, "2.11.0, compiled, cuda (H100)": ran})
    release.main("good")
    out = clone / "out/release/abc1234"
    (out / "good.support.json").write_text(json.dumps({"2.15.0, compiled, cpu": ran}))
    release.records.write(out / "records/fuzz.jsonl", [{"cells": 3}])
    release.main("--record")
    assert {*release.support.recorded()} == {
        "2.11.0, compiled, cuda (H100)", "2.15.0, compiled, cpu",
    }  # fmt: skip
    assert release.records.read("fuzz")["rows"] == [{"cells": 3}]
    found = release.records.read("release")
    assert found["commit"] == "abc1234"
    assert [row.get("passed") for row in found["rows"]] == [True, None, None]
    shown = release.release()
    assert "| `good` |" in shown and "Not run at this commit: `bad`, `absent`." in shown
