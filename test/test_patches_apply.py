"""A series applies to upstream's real text whole or not at all, and says why where it does not."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchgen

from clampgrad.patches.apply import apply, state_of, status
from clampgrad.patches.series import PATCHES, Refusal, all_series
from clampgrad.patches.tree import YAML, convention_of

RELEASE = torch.__version__.split("+")[0]
TEXT = (Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml").read_text()
MINE = [s for s in all_series().values() if s.fits(RELEASE)]
ALONE = [s for s in MINE if all(p.read_text().count("--- a/") == 1 for p in s.patches)]


def git(tree, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True)


def tree_of(directory, text=TEXT, release=RELEASE):
    (directory / YAML).parent.mkdir(parents=True)
    (directory / YAML).write_text(text)
    (directory / "version.txt").write_text(f"{release}a0\n")
    git(directory, "init")
    git(directory, "add", ".")
    git(directory, "commit", "-m", "upstream")
    return directory


def yaml_applies(directory, series, *flags):
    for patch in series.patches:
        if f"--- a/{YAML}" in patch.read_text() and patch not in series.optional:
            git(directory, "apply", *flags, f"--include={YAML}", str(patch))


@pytest.mark.parametrize("series", MINE, ids=[s.name for s in MINE])
def test_the_installed_derivatives_yaml_takes_every_patch_and_gives_it_back(tmp_path, series):
    tree = tree_of(tmp_path)
    yaml_applies(tree, series)
    patched = (tree / YAML).read_text()
    for patch in series.patches:
        assert (patched != TEXT) or f"--- a/{YAML}" not in patch.read_text()
    if series.name == "v2.13.0":
        assert (convention_of(TEXT), convention_of(patched)) == ("inclusive", "fixed fmax")
    if series.name.endswith("restore-inclusive"):
        assert convention_of(patched) == "inclusive"


@pytest.mark.skipif(not ALONE or RELEASE < "2.14", reason="other series need files no wheel has")
def test_apply_undo_and_status(tmp_path):
    tree = tree_of(tmp_path)
    name = next(s.name for s in ALONE if s.name.endswith("restore-inclusive"))
    assert status(tree).series[name] == "not applied"
    apply(tree, name, check=True, reverse=False)
    assert (tree / YAML).read_text() == TEXT
    apply(tree, name, check=False, reverse=False)
    assert status(tree).series[name] == "applied" and status(tree).dirty
    with pytest.raises(Refusal, match="already applied"):
        apply(tree, name, check=False, reverse=False)
    apply(tree, name, check=False, reverse=True)
    assert (tree / YAML).read_text() == TEXT


def test_refusals_leave_the_tree_as_it_was(tmp_path):
    with pytest.raises(Refusal, match="no PyTorch source tree"):
        status(tmp_path)
    tree = tree_of(tmp_path / "tree")
    other = "v2.15.0/restore-inclusive" if RELEASE < "2.14" else "v2.13.0"
    with pytest.raises(Refusal, match=f"{RELEASE} there is {MINE[0].name}"):
        apply(tree, other, check=False, reverse=False)
    (tree / YAML).write_text(TEXT + "# mine\n")
    with pytest.raises(Refusal, match="uncommitted"):
        apply(tree, MINE[0].name, check=False, reverse=False)
    assert (tree / YAML).read_text() == TEXT + "# mine\n"


def test_a_series_that_does_not_apply_changes_nothing(tmp_path):
    # The first patch of a series may fit; what a later one needs is not in this tree.
    tree = tree_of(tmp_path, TEXT.replace("name: clamp_max(", "name: clamp_most("))
    with pytest.raises(Refusal, match="does not apply"):
        apply(tree, MINE[0].name, check=False, reverse=False)
    assert not subprocess.check_output(["git", "status", "--porcelain"], cwd=tree)


def test_applied_in_part(tmp_path):
    """The first patch of the series is there, as far as this tree has its text, and no other."""
    tree = tree_of(tmp_path)
    series = MINE[0]
    whole = replace(series)
    if len(whole.patches) == 1:
        pytest.skip("a series of one patch has no part")
    git(tree, "apply", f"--include={YAML}", str(whole.patches[0]))
    alone = tmp_path / "0001.patch"
    text = whole.patches[0].read_text()
    alone.write_text(text[: text.index("diff --git a/torch")])
    whole.patches = [alone, *whole.patches[1:]]
    assert state_of(tree, whole) == "in part"


def test_the_command_line(tmp_path):
    command = [sys.executable, "-m", "clampgrad.patches"]
    listed = subprocess.run(
        [*command, "list", "--json"], capture_output=True, text=True, check=True
    )
    assert set(json.loads(listed.stdout)) == set(all_series())
    refused = subprocess.run([*command, "status", str(tmp_path)], capture_output=True, text=True)
    assert refused.returncode == 2 and "no PyTorch source tree" in refused.stdout


def test_every_patch_is_ready_to_send():
    for path in PATCHES.rglob("*.patch"):
        text = path.read_text()
        for word in (
            "From: ",
            "Subject: [PATCH] ",
            "Origin: ",
            "Bug: ",
            "Forwarded: ",
            "Last-Update: ",
        ):
            assert f"\n{word}" in text, (path, word)
