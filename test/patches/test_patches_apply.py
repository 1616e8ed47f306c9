"""A series applies to upstream's real text whole or not at all, and says why where it does not."""

import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torchgen

from clampgrad.patches import apply as applying
from clampgrad.patches.apply import attempt, files_added, files_of, status
from clampgrad.patches.series import PATCHES, Refusal, all_series, named
from clampgrad.patches.tree import FUNCTIONS, YAML, convention_of
from common import python
from tools.verify.text import hunks, manual_text

RELEASE = torch.__version__.split("+")[0]
TEXT = (Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml").read_text()
MINE = [s for s in all_series().values() if s.fits(RELEASE)]
SERIES = MINE[0]
JOINT = "v2.13.0/joint"
needs_joint = pytest.mark.skipif(
    not named(JOINT).fits(RELEASE), reason="the series for this release have one patch each"
)
SOURCES = [Path(p) for p in os.environ.get("CLAMPGRAD_SOURCES", "").split(os.pathsep) if p]


def git(tree, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True)


def write(tree, name, text):
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


def commit(tree):
    git(tree, "add", ".")
    git(tree, "commit", "-m", "upstream")


def tree_of(directory, release=RELEASE):
    """A tree with upstream's derivatives.yaml and headers, and of the other files what the hunks quote."""
    headers = Path(torch.__file__).parent / "include"
    for patch in (p for s in MINE for p in s.patches):
        for name in set(files_of(patch)) - set(files_added(patch)):
            is_there = (headers / name).exists()
            text = (headers / name).read_text() if is_there else hunks(patch, name, "-")
            write(directory, name, text)
    write(directory, YAML, TEXT)
    write(directory, FUNCTIONS, manual_text(RELEASE, None))
    write(directory, "version.txt", f"{release}a0\n")
    git(directory, "init")
    commit(directory)
    return directory


def apply(tree, name, check=False, reverse=False, **others):
    return applying.apply(tree, name, check, reverse, **others)


@pytest.fixture
def tree(tmp_path):
    return tree_of(tmp_path / "pytorch")


def content(tree):
    return {p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts}


@pytest.mark.parametrize("name", [s.name for s in MINE])
def test_apply_and_undo(tree, name):
    before = content(tree)
    patches = [patch.name for patch in named(name).patches]
    assert status(tree).series[name] == "not applied" and not status(tree).dirty
    assert apply(tree, name, check=True) == (patches, [])
    assert content(tree) == before
    assert apply(tree, name) == (patches, [])
    changed = {
        str(p.relative_to(tree)) for p, text in content(tree).items() if text != before.get(p)
    }
    assert changed == {f for patch in named(name).patches for f in files_of(patch)}
    assert status(tree).series[name] == "applied" and status(tree).dirty
    with pytest.raises(Refusal, match="already applied"):
        apply(tree, name)
    assert apply(tree, name, reverse=True) == (patches[::-1], [])
    assert content(tree) == before
    with pytest.raises(Refusal, match="not applied"):
        apply(tree, name, reverse=True)


# What the wheels say about clamp and its family: text, by release (tools/upstream_text.py).
UPSTREAM = {
    release: path.read_text()
    for path in Path(__file__).parents[1].glob("upstream/*.yaml")
    for release in re.findall(r"^#   v(\d+\.\d+)", path.read_text(), re.MULTILINE)
}
CONVENTIONS = {"strict": "strict scalar", "restore-inclusive": "inclusive"}
CONVENTIONS |= dict.fromkeys(("joint", "fmax"), "fixed fmax")
PAIRS = [(s.name, r) for s in all_series().values() for r in s.releases]


@pytest.mark.parametrize("name, release", PAIRS)
def test_the_formulas_apply_to_every_release(tmp_path, name, release):
    """Whether or not it is installed; the other files of the series are in no wheel."""
    series, text = named(name), UPSTREAM[release]
    write(tmp_path, YAML, text)
    git(tmp_path, "init")
    for patch in series.patches:
        if YAML in files_of(patch):
            git(tmp_path, "apply", f"--include={YAML}", str(patch))
    after = (tmp_path / YAML).read_text()
    assert (after != text) == any(YAML in files_of(p) for p in series.patches)
    if wanted := CONVENTIONS.get(name.split("/")[1]):
        assert convention_of(after) == wanted != convention_of(text)


def test_the_text_of_upstream_is_that_of_the_wheel():
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools/upstream_text.py"))
    text = UPSTREAM[".".join(RELEASE.split(".")[:2])]
    assert text.endswith("\n" + tool["excerpt"](TEXT))
    assert f"#   v{RELEASE} " in text and f"blob {tool['blob'](TEXT)}" in text


def test_status_names_the_convention(tmp_path):
    """Of derivatives.yaml as it comes with the installed torch, and of whose commit it is."""
    found = status(tree_of(tmp_path))
    upstream = {"2.14": "shared ties"}.get(RELEASE[:4], "fixed fmax")
    assert found.convention == ("inclusive" if named(JOINT).fits(RELEASE) else upstream)
    assert found.release == RELEASE and len(found.commit) == 40


def test_git_am_takes_the_patches(tree):
    git(tree, "am", *map(str, SERIES.patches))
    assert status(tree).series[SERIES.name] == "applied" and not status(tree).dirty


def refused(tree, match, name=SERIES.name, reverse=False):
    before = content(tree)
    with pytest.raises(Refusal, match=match):
        apply(tree, name, reverse=reverse)
    assert content(tree) == before


def test_an_unknown_tree_is_refused(tree, tmp_path):
    refused(tmp_path, "no PyTorch source tree")
    old = tree_of(tmp_path / "old", "2.6.1")
    refused(old, "none for 2.6.1, only for 2.7, 2.8", name=None)
    refused(old, f"is 2.6.1 and {SERIES.name} is for")
    patches = [patch.name for patch in SERIES.patches]
    assert apply(old, SERIES.name, True, False, any_release=True) == (patches, [])
    write(old, "version.txt", "main\n")
    refused(old, "does not begin with a release")
    write(tree, "version.txt", f"{RELEASE}a1\n")
    refused(tree, "Commit or stash the changes to")
    # As that of another user: whether it has changes, nobody knows.
    (tree / ".git/HEAD").unlink()
    refused(tree, "git does not read")


@pytest.mark.parametrize("within", [False, True])
def test_a_release_without_git_is_patched(tmp_path, within):
    """As a tarball unpacks, perhaps into somebody's repository."""
    tree = tree_of(tmp_path / "pytorch")
    shutil.rmtree(tree / ".git")
    if within:
        git(tmp_path, "init")
    before = content(tree)
    assert status(tree).commit is None and not status(tree).dirty
    apply(tree, SERIES.name)
    assert status(tree).series[SERIES.name] == "applied" and content(tree) != before
    apply(tree, SERIES.name, reverse=True)
    assert content(tree) == before


def test_without_git_it_is_refused(tree, monkeypatch):
    monkeypatch.setenv("PATH", "")
    refused(tree, "no git on PATH")


def test_a_wrong_release_is_refused_with_the_right_series(tree):
    other = next(s.name for s in all_series().values() if not s.fits(RELEASE))
    refused(tree, f"for {RELEASE} there is {SERIES.name}", name=other)
    if len(MINE) > 1:
        refused(tree, "Name a series", name=None)


@needs_joint
def test_a_half_applied_series_is_refused(tree):
    series = named(JOINT)
    git(tree, "apply", str(series.patches[0]))
    commit(tree)
    assert status(tree).series[series.name] == "in part"
    for reverse in (False, True):
        refused(tree, "applied in part", name=series.name, reverse=reverse)


def test_a_series_that_does_not_apply_changes_nothing(tree):
    """The first files fit; the last one that is there has another text."""
    changing = [p for p in SERIES.patches if set(files_of(p)) - set(files_added(p))]
    patch = next(p for p in reversed(changing) if p not in SERIES.optional)
    write(tree, files_of(patch)[-1], "another text\n")
    commit(tree)
    refused(tree, f"{patch.name} does not apply")


@needs_joint
@pytest.mark.parametrize("there", [False, True])
def test_an_optional_patch_may_be_missing_or_there_before(tree, there):
    """What the tree had before is not undone."""
    *others, last = named(JOINT).patches
    if there:
        git(tree, "apply", str(last))
    else:
        (tree / files_of(last)[0]).unlink()
    commit(tree)
    before = content(tree)
    for reverse in (False, True):
        done, skipped = apply(tree, JOINT, reverse=reverse)
        assert skipped == [last.name] and {*done} == {patch.name for patch in others}
        assert there or status(tree).series[JOINT] == ("not applied" if reverse else "applied")
    assert content(tree) == before


def test_a_series_that_was_committed_is_undone_whole(tree):
    before = content(tree)
    apply(tree, SERIES.name)
    commit(tree)
    assert apply(tree, SERIES.name, reverse=True)[1] == []
    assert content(tree) == before


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_a_file_that_cannot_be_written_leaves_the_tree_as_it_was(tree, monkeypatch, failure):
    before, write_bytes, failed = content(tree), Path.write_bytes, []

    def once(path, data):
        if tree in path.parents and not failed:
            failed.append(path)
            write_bytes(path, data[: len(data) // 2])
            raise failure("in the middle")
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", once)
    with pytest.raises(failure, match="in the middle"):
        apply(tree, SERIES.name)
    assert failed and content(tree) == before


def test_the_command_line(tmp_path, command):
    """Exit codes: 0 done, 2 refused; 1 is for a proof that failed."""

    def patches(*words):
        code, out, _ = command("patches", *words, "--json")
        return code, json.loads(out)

    code, listed = patches("list")
    assert code == 0 and set(listed) == set(all_series())
    tree = tree_of(tmp_path / "tree")
    apply = ("apply", tree, "--series", SERIES.name)
    done = {"done": [patch.name for patch in SERIES.patches], "skipped": []}
    assert patches(*apply, "--check") == (0, done) and not status(tree).dirty
    assert patches(*apply) == (0, done)
    code, told = patches("status", tree)
    assert (code, told["series"][SERIES.name], told["dirty"]) == (0, "applied", True)
    code, out, _ = command("patches", *apply)
    assert code == 2 and out.startswith("refused: ")
    assert patches(*apply, "--reverse")[0] == 0 and not status(tree).dirty
    code, refused = patches("status", tmp_path)
    assert code == 2 and "no PyTorch" in refused["error"]
    assert patches("export", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / SERIES.name / "series").is_file()


@pytest.mark.skipif(not SOURCES, reason="CLAMPGRAD_SOURCES names no tree: make check-sources")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_whole_source_tree_takes_the_code_patches(tmp_path, source):
    """Of any release from 1.13 to 2.13; git applies a hunk where all of its context is, or not at all."""
    series = named(JOINT)
    done, skipped = attempt(source, series, False, tmp_path)
    assert set(skipped) <= series.optional and len(done) + len(skipped) == len(series.patches)
    assert convention_of((tmp_path / YAML).read_text()) == "fixed fmax"


def test_it_runs_as_a_module():
    lines = python("-m", "clampgrad.patches", "list").splitlines()
    rows = [re.split("  +", line) for line in lines[1:]]
    assert [row[0] for row in rows] == list(all_series())
    spans = {name: span for name, span, _ in rows}
    assert spans["v2.13.0/strict"] == "2.7 to 2.13" and spans["v2.14.0/fmax"] == "2.14"


def test_every_patch_is_ready_to_send():
    words = ("From: ", "Subject: [PATCH] ", "Origin: ", "Bug: ", "Forwarded: ", "Last-Update: ")
    for path in PATCHES.rglob("*.patch"):
        assert [word for word in words if f"\n{word}" not in path.read_text()] == [], path


def test_a_proposal_has_what_upstream_asks_for():
    texts = [path.read_text() for path in PATCHES.rglob("PULL_REQUEST.md")]
    assert texts
    for text in texts:
        assert re.search(r"^(Fixes|Related:) #\d", text, re.MULTILINE)
        for part in ("\n## Test plan", "\n## Benchmarks", "\n## BC", "BC-breaking"):
            assert part in text
        statement = " ".join(text.replace("\n> ", " ").split())
        assert "a human must have read all of it, must own it" in statement
        assert "must disclose machine help" in statement
