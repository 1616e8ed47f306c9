"""The commands of docs/upstream/build.md apply each series to upstream's text, and undo it."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab.series import (
    FUNCTIONS,
    PATCHES,
    YAML,
    all_series,
    choices,
    files_added,
    files_of,
    main,
    named,
    states,
)
from lab.verify.upstream_files import of_the_wheel, section, stock_functions
from testing.processes import run

ROOT = Path(__file__).resolve().parents[2]
RELEASE = torch.__version__.split("+")[0]
MINOR = RELEASE.rpartition(".")[0]
TEXT = of_the_wheel(YAML).read_text()
MINE = [s for s in all_series().values() if s.fits(RELEASE)]
STRICT, JOINT = "v2.13.0/strict", "v2.13.0/joint"
# The text of the wheels about clamp and its family, by release (lab/upstream_text.py).
UPSTREAM = {
    release: path.read_text()
    for path in PATCHES.glob("upstream/*.yaml")
    for release in re.findall(r"^#   v(\d+\.\d+)", path.read_text(), re.MULTILINE)
}
PAIRS = [(s.name, r) for s in all_series().values() for r in s.releases]


def git(tree, *arguments):
    subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)


def write(tree, texts):
    for name, text in texts.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


def commit(tree, texts):
    write(tree, texts)
    git(tree, "add", ".")
    git(tree, "commit", "-m", "upstream")


def repository(tree, texts):
    """One in which anybody can commit."""
    tree.mkdir(exist_ok=True)
    git(tree, "init")
    for key in ("name", "email"):
        git(tree, "config", f"user.{key}", "upstream")
    commit(tree, texts)


def tree_of(directory, release=RELEASE, *names):
    """A tree with the files of these series, or of all for the release, as far as the wheel has
    them; the other files have only the lines that the hunks quote."""
    minor = release.rpartition(".")[0]
    texts = {YAML: TEXT if minor == MINOR else UPSTREAM[minor], "version.txt": f"{release}a0\n"}
    texts[FUNCTIONS] = stock_functions(release)
    mine = [s for s in all_series().values() if s.fits(release) and s.name in (names or [s.name])]
    patches = [p for s in mine for p in s.patches]
    for patch in patches:
        for name in set(files_of(patch)) - set(files_added(patch)) - texts.keys():
            whole = of_the_wheel(name)
            here = minor == MINOR and whole.is_file()
            texts[name] = whole.read_text() if here else quoted(patches, name)
    repository(directory, texts)
    return directory


def quoted(patches, name):
    """The lines that the hunks quote; of a later patch those that no earlier one has written."""
    before = after = ""
    for patch in patches:
        for hunk in re.split(r"(?m)^@@ .*\n", "\n".join(section(patch, name)) + "\n")[1:]:
            old, new = (
                "".join(line[1:] + "\n" for line in hunk.splitlines() if line[:1] in (" ", side))
                for side in "-+"
            )
            if old not in after:
                before, after = before + old, after + new
    return before


def content(tree):
    return {p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts}


PAGE = (ROOT / "docs/upstream/build.md").read_text()
BY_HAND = PAGE.partition("## By hand\n")[2].partition("\n## ")[0]
ASK, CHECK, BY_NAME, APPLY, JOINTLY, UNDO_BOTH, ARCHIVE, *_ = re.findall(
    r"^```sh\n(.*?)^```", BY_HAND, re.M | re.S
)
(DEBIAN,) = re.findall(r"^```sh\n(apt-get source .*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder with a checkout of this repository and one of PyTorch, by
    release, in which commands run."""
    (tmp_path / "clampgrad").symlink_to(ROOT)
    # The commands call `python`, which an environment has and a minimal system does not.
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)

    def shell(commands, fails=False):
        done = run("bash", "-e", "-o", "pipefail", "-c", commands, cwd=tmp_path)
        assert bool(done.returncode) == fails, done.stderr
        return done.stdout + done.stderr

    return lambda release, *names: (tree_of(tmp_path / "pytorch", release, *names), shell)


@pytest.mark.parametrize("name, release", PAIRS)
def test_a_series_by_its_name(beside, name, release):
    """On every release that it is for, whether or not that is installed."""
    tree, shell = beside(release + ".0", name)
    before, of_series = content(tree), BY_NAME.replace("v2.14.0/fmax", name)
    assert states(tree)[name] == "applies"
    shell(of_series)
    changed = {str(p.relative_to(tree)) for p, t in content(tree).items() if t != before.get(p)}
    assert changed == set(files_of(*named(name).patches))
    assert states(tree)[name] == "applied"
    assert re.search(rf"^{name} +applied$", shell(ASK), re.MULTILINE)
    assert f"pytorch has {name} already" in shell(of_series, fails=True)
    shell("git -C pytorch reset --keep ORIG_HEAD")
    assert content(tree) == before and states(tree)[name] == "applies"


def test_strict_and_then_joint(beside):
    """As on the page: both at once, or joint in a tree that has strict."""
    tree, shell = beside("2.13.0")
    before = content(tree)
    shell(APPLY)
    upgrade = "applies, 2 of 4 patches"
    assert states(tree) == {JOINT: upgrade, STRICT: "applied"}
    assert "pytorch has v2.13.0/strict already" in shell(
        BY_NAME.replace("v2.14.0/fmax", STRICT), fails=True
    )
    shell(BY_NAME.replace("v2.14.0/fmax", JOINT))
    assert states(tree) == {JOINT: "applied", STRICT: "applied"}
    both = content(tree)
    refusal = shell(BY_NAME.replace("v2.14.0/fmax", STRICT), fails=True)
    assert "pytorch has v2.13.0/strict already (in v2.13.0/joint)" in refusal
    shell("git -C pytorch reset --keep ORIG_HEAD")  # the last git am alone, as the page says
    assert states(tree) == {JOINT: upgrade, STRICT: "applied"}
    shell(JOINTLY.splitlines()[1])
    shell(UNDO_BOTH)
    assert content(tree) == before
    shell(JOINTLY)
    assert content(tree) == both


def test_a_series_beside_one_that_changes_the_same_lines(beside):
    """Is refused by its name, and not in git's words."""
    tree, shell = beside("2.14.0")
    shell(BY_NAME)
    error = "v2.14.0/restore-inclusive does not apply beside v2.14.0/fmax, which"
    assert states(tree)["v2.14.0/restore-inclusive"].startswith(error)
    assert error in shell(BY_NAME.replace("v2.14.0/fmax", "v2.14.0/restore-inclusive"), fails=True)


def test_a_series_that_git_refuses_is_not_applied(beside):
    """Where a file that the series adds is in the way, which git says with the word `already`."""
    tree, _ = beside("2.13.0")
    (added,) = (name for patch in named(STRICT).patches for name in files_added(patch))
    write(tree, {added: "left over\n"})
    assert re.search("does not apply to .* already exists", states(tree)[STRICT])


def test_a_series_for_another_release_than_the_tree(beside):
    tree, shell = beside("2.13.0")
    assert "v2.14.0/fmax is for 2.14, and pytorch is 2.13.0." in shell(BY_NAME, fails=True)


def test_whether_it_can_be_applied_and_built(beside, monkeypatch, tmp_path):
    """And what that would do. What does not fit is said before what the build lacks."""
    tree, shell = beside("2.13.0")
    for name in ("cmake", "ninja", "c++"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    bare = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    out = shell(CHECK.replace(JOINT, STRICT))
    assert out.startswith(
        "ready: git am would add 2 commits of v2.13.0/strict to pytorch (2.13.0), which change "
    )
    assert YAML in out
    write(tree, {"version.txt": "2.13.0\n"})
    assert "commit or stash first: version.txt" in shell(CHECK, fails=True)
    many = {f"file_{i:02}.txt": "" for i in range(30)}
    commit(tree, many)
    write(tree, dict.fromkeys(many, "changed\n"))
    refusal = shell(CHECK, fails=True)
    assert "file_09.txt and 20 more" in refusal and "file_10" not in refusal
    commit(tree, {})
    git(tree, "config", "user.useConfigOnly", "true")  # whatever the system's name is
    git(tree, "config", "--unset", "user.email")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert "set user.name and user.email" in shell(CHECK, fails=True)
    git(tree, "config", "user.email", "upstream")
    commit(tree, {".gitmodules": '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n'})
    monkeypatch.setenv("CXX", "no-such-compiler")
    refusal = shell(CHECK, fails=True)
    assert "without files: third_party/x" in refusal and "not on PATH: no-such-compiler" in refusal
    monkeypatch.setenv("PATH", bare)
    commit(tree, {YAML: "another text\n"})
    refusal = shell(CHECK, fails=True)
    assert f"{JOINT} does not apply" in refusal and "third_party" not in refusal


def test_an_archive_within_another_repository(beside, tmp_path):
    """All patches or none, and undone again, in a tree without git inside somebody's repository."""
    tree, shell = beside("2.13.0")
    shutil.rmtree(tree / ".git")
    git(tmp_path, "init")
    before = content(tree)
    listed, applied, undone = ARCHIVE.splitlines()
    shell(f"{listed}\n{applied}")
    assert states(tree) == {JOINT: "applied", STRICT: "applied"} and content(tree) != before
    shell(f"{listed}\n{undone}")
    assert content(tree) == before
    write(tree, {FUNCTIONS: "another text\n"})
    shell(f"{listed}\n{applied}", fails=True)
    write(tree, {FUNCTIONS: stock_functions("2.13.0")})
    assert content(tree) == before


@pytest.mark.skipif(not shutil.which("quilt"), reason="quilt is not installed")
def test_in_a_package_of_debian(beside):
    """The commands of the page between those that download and build the package."""
    tree, shell = beside("2.13.0", STRICT)
    before = content(tree)
    _, *commands, _ = DEBIAN.splitlines()
    shell("\n".join(["cd pytorch", *commands]))
    assert states(tree)[STRICT] == "applied"
    shell(f"cd pytorch\n{commands[0]}\nquilt pop -a")
    assert before.items() <= content(tree).items()


def test_what_does_not_apply_is_said(beside):
    """git am refuses it, and the tree comes back."""
    tree, shell = beside("2.13.0")
    other = (tree / YAML).read_text().replace("fmax(Tensor self", "fmax(Tensor  self")
    commit(tree, {YAML: other})
    before = content(tree)
    assert states(tree)[STRICT] == "applies" and YAML in states(tree)[JOINT]
    shell(JOINTLY, fails=True)
    shell("git -C pytorch am --abort\ngit -C pytorch reset --keep HEAD~2")
    assert content(tree) == before


@pytest.mark.parametrize("version, code, says", [
    (None, 2, "is no PyTorch source tree"),
    ("main", 2, "does not begin with a release"),
    ("2.6.1", 0, "2.6.1: there is none for 2.6.1, only for 2.7, 2.8"),
    ("2.2.0", 0, "\nTo make a series for it, see docs/upstream/propose.md.\n"),
])  # fmt: skip
def test_what_is_no_tree_for_a_series(tmp_path, capsys, version, code, says):
    if version:
        write(tmp_path, {YAML: TEXT, "version.txt": f"{version}\n"})
    assert main([str(tmp_path)]) == code
    assert says in "".join(capsys.readouterr())


def test_the_list_is_that_of_the_page(capsys):
    assert main(["--patches", "v2.6.0/none"]) == 2 and "v2.6.0/none" in capsys.readouterr().err
    assert main([]) == 0
    rows = [re.split("  +", line, maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in rows] == list(all_series())
    table = re.findall(r"(?m)^\| (`[vp].*?) \| (.*?) \|", PAGE.partition("\n## ")[0])
    listed = {n: spans for names, spans in table for n in re.findall("`(.*?)`", names)}
    assert listed.keys() == all_series().keys()
    assert all(span in listed[name] for name, span, _ in rows)
    assert choices("2.13.1") == f"for 2.13.1 there is {JOINT}, {STRICT}"


def test_the_text_of_upstream_is_that_of_the_wheel():
    tool = runpy.run_path(str(ROOT / "lab/upstream_text.py"))
    text = UPSTREAM[MINOR]
    assert text.endswith("\n" + tool["excerpt"](TEXT))
    assert f"#   v{RELEASE} " in text and f"blob {tool['blob'](TEXT)}" in text


# Folders of whole source trees, for the series of v2.13.0.
SOURCES = [Path(p) for p in os.environ.get("CLAMPGRAD_SOURCES", "").split(os.pathsep) if p]


@pytest.mark.skipif(not SOURCES, reason="CLAMPGRAD_SOURCES names no tree: nox -s debian")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_whole_source_tree_takes_the_patches(tmp_path, source):
    """By git am, and by patch without fuzz, as quilt and dpkg-source have it."""
    patches = named(JOINT).patches
    names = set(files_of(*patches)) - {name for patch in patches for name in files_added(patch)}
    repository(tmp_path, {name: (source / name).read_text() for name in names})
    git(tmp_path, "am", *map(str, patches))
    after = content(tmp_path)
    git(tmp_path, "reset", "--hard", f"HEAD~{len(patches)}")
    for path in patches:
        patch = ["patch", "-p1", "--fuzz=0", "--input", str(path)]
        subprocess.run(patch, cwd=tmp_path, check=True, capture_output=True)
    assert content(tmp_path) == after


def test_blob_ids_are_those_of_git(tmp_path):
    """Nothing before a file that is added, and nothing else is zero; of the installed release's
    formulas, those that git computes before and after."""
    for path in PATCHES.rglob("*.patch"):
        added = files_added(path)
        ids = re.findall(
            r"(?m)^diff --git a/(\S+) .*\n(?:new file .*\n)?index (\w{40})\.\.(\w{40})",
            path.read_text(),
        )
        for name, before, after in ids:
            assert (int(before, 16) == 0) == (name in added) and int(after, 16), (path, name)
    index = re.compile(rf"diff --git a/{YAML} .*\nindex (\w{{40}})\.\.(\w{{40}})")
    for series in MINE:
        tree = tmp_path / series.name.replace("/", "-")
        repository(tree, {YAML: TEXT})
        for patch in series.patches:
            ids = [run("git", "hash-object", YAML, cwd=tree).stdout.strip()]
            git(tree, "apply", f"--include={YAML}", str(patch))
            ids.append(run("git", "hash-object", YAML, cwd=tree).stdout.strip())
            if (match := index.search(patch.read_text())) and match[1] == ids[0]:
                assert match[2] == ids[1], patch


def test_every_patch_has_the_fields_of_debian():
    words = ("From: ", "Subject: [PATCH] ", "Origin: ", "Bug: ", "Forwarded: ", "Last-Update: ")
    for path in PATCHES.rglob("*.patch"):
        assert [word for word in words if f"\n{word}" not in path.read_text()] == [], path
