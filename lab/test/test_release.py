"""`make release`: its steps, and what it does with them for one package."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import records
from buildtools.torch_here import RELEASES
from common import checked
from lab import artefacts, release

ROOT = Path(__file__).parents[2]


def test_every_step_calls_what_exists():
    """Targets of the Makefile, a module, a script or a file of tests."""
    targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    for step, line in release.steps().items():
        made = re.findall(r"(?:^|&& )make((?: [a-z][a-z0-9-]*(?= |$))+)", line)
        files = [f"lab/{module}.py" for module in re.findall(r"-m lab\.(\w+)", line)]
        files += re.findall(r"(?:lab|test)/[\w/]+\.(?:sh|py)", line)
        assert made or files, step
        assert {*" ".join(made).split()} <= {*targets}, step
        assert [file for file in files if not (ROOT / file).exists()] == [], step
    assert {*release.NEEDS} <= {*release.steps()}


def test_a_python_may_stand_in_any_folder(tmp_path, monkeypatch):
    """Also in one with a space in its name."""
    python = tmp_path / "my python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(python))
    named = [line for line in release.steps().values() if line.startswith('"$PYTHON"')]
    assert named and all(release.shell(line, tmp_path / "log") for line in named)


@pytest.mark.parametrize("variables, whole", [([], True), (["DRY=0"], True), (["DRY=1"], False)])
def test_a_dry_run_is_asked_for(variables, whole):
    shown = checked("make", "--just-print", "release", *variables, cwd=ROOT)
    assert ("-m lab.release" in shown) == whole
    assert ("cyclonedx-py" in shown) != whole


# ---- The rows ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_variable_that_narrows(monkeypatch):
    """Those that these tests themselves run with."""
    for name in [*filter(release.NARROWS.match, os.environ)]:
        monkeypatch.delenv(name)


@pytest.fixture
def three(monkeypatch, tmp_path):
    """A release of three steps, of which the machine lacks something for the last. A function
    runs it, and one returns what is recorded."""
    monkeypatch.chdir(tmp_path)  # which `main` leaves
    for name in ("PIP_CONSTRAINT", "RECORDS", "PYTHON"):
        monkeypatch.setenv(name, "")  # which it sets
    for name, value in {
        "ROOT": tmp_path,
        "steps": lambda out="": {"artefacts": "true", "docs": "test -e mended", "gpu": "true"},
        "NEEDS": {"gpu": "false"},
        "head": lambda: "c0ffee",
        "package": lambda: "a-package",
        "git": lambda *words: "",
    }.items():
        monkeypatch.setattr(release, name, value)
    monkeypatch.setattr(release.support, "record", lambda runs: None)
    monkeypatch.setattr(release.records, "NEW", tmp_path)
    return tmp_path / "release.jsonl"


def test_a_step_that_failed_is_not_recorded(three, capsys, monkeypatch):
    """A step that was not run may be missing, and its row and the end of the run say so."""
    with pytest.raises(SystemExit, match="not passed: docs;"):
        release.main()
    assert "lacks something: gpu\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="have not: docs"):
        release.main("--record")
    assert not three.exists()
    (three.parent / "mended").touch()
    release.main()
    release.main("--record")
    header, *rows = map(json.loads, three.read_text().splitlines())
    assert header == {"commit": "c0ffee", "package": "a-package"}
    assert [release.how(row) for row in rows] == ["yes", "yes", "not run: `false` fails there"]


def test_what_was_never_made_is_not_recorded(three):
    with pytest.raises(SystemExit, match="nothing to record"):
        release.main("--record")
    assert not three.exists()


@pytest.mark.parametrize("missing", [False, True, "here"])
def test_a_part_replaces_no_file_that_several_steps_fill(three, monkeypatch, missing):
    """The row of another release of torch would go."""
    rows = dict.fromkeys(
        ("artefacts", "first-minute-1", "first-minute-2", "fuzz", "from-nothing"), "true"
    ) | {"from-nothing-forky": "true"}
    monkeypatch.setattr(release, "steps", lambda out="": rows)
    monkeypatch.setattr(release.support, "recorded", dict)
    monkeypatch.setattr(release.records, "FOLDER", three.parent)
    recorded: dict = {}
    monkeypatch.setattr(release.support, "record", recorded.update)
    release.main(*[step for step in rows if not (missing is True and step[-1] in "2y")])
    made = three.parent / "out/release/a-package/records"
    for name in ("first-minute", "fuzz", "from-nothing"):
        (made / f"{name}.jsonl").touch()
    if missing == "here":  # another machine has run one of them
        release.main("--record")
        (three.parent / "first-minute.jsonl").unlink()
        (made.parent / "first-minute-1.json").unlink()
    for name in ("fuzz", "from-nothing-forky"):  # the second may have been interrupted
        (made.parent / f"{name}.support.json").write_text(json.dumps({name: {}}))
    release.main("--record")
    assert (three.parent / "first-minute.jsonl").exists() == (not missing)
    assert ("from-nothing-forky" in recorded) == (missing is not True) and "fuzz" in recorded
    assert (three.parent / "fuzz.jsonl").exists()
    assert (three.parent / "from-nothing.jsonl").exists()  # forky fills one of its own


def test_what_a_tag_needs(three, monkeypatch):
    """The whole record of this package, and a README that may stand on PyPI."""
    monkeypatch.setattr(release.records, "FOLDER", three.parent)
    readme = three.parent / "README.md"

    def record(package, row, text):
        three.write_text(f'{{"commit": "c0ffee", "package": "{package}"}}\n{row}\n')
        readme.write_text(text)

    ran = '{"step": "gpu", "on": "2026-11-28", "lacks": "nvidia-smi"}'  # it may be missing
    ran += '\n{"step": "docs", "on": "2026-11-28", "passed": true}'
    monkeypatch.setattr(release, "steps", lambda out="": {"gpu": "true", "docs": "true"})
    monkeypatch.setattr(release, "readme", lambda: readme.read_text().replace("](", "](https://"))
    record("a-package", ran, "[install](docs/install.md)")
    release.main("--check")
    for package, row, text, says in (
        ("another", ran, "", "of another package"),
        ("a-package", '{"step": "docs"}', "", "have not run for this package: gpu, docs"),
        # A step that is new, and one that the machine lacked something for.
        ("a-package", ran.replace("docs", "old"), "", "have not run for this package: docs"),
        ("a-package", ran.replace('"passed"', '"lacks"'), "", "for this package: docs"),
        ("a-package", ran.replace("true", "false"), "", "for this package: docs"),
        ("a-package", ran, "it is not on PyPI yet", "README"),
        ("a-package", ran, "no link that differs", "names no repository"),
    ):
        record(package, row, text)
        with pytest.raises(SystemExit, match=says):
            release.main("--check")


def test_the_files_and_their_hashes(tmp_path, monkeypatch):
    """As `sha256sum` has them."""
    monkeypatch.setattr(artefacts.records, "NEW", tmp_path)
    (tmp_path / "clampgrad-1.0.0.tar.gz").write_bytes(b"x" * 1_234_567)
    said = checked("sha256sum", "clampgrad-1.0.0.tar.gz", cwd=tmp_path)
    (tmp_path / "SHA256SUMS").write_text(said)
    artefacts.main(tmp_path)
    monkeypatch.setattr(artefacts.records, "FOLDER", tmp_path)
    assert f"| `clampgrad-1.0.0.tar.gz` | 1.23 | `{said[:12]}` |" in artefacts.artefacts()
    (row,) = records.read("artefacts")["rows"]
    assert said.startswith(row["sha256"])


# ---- The workflow --------------------------------------------------------------------------------

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS = WORKFLOW["jobs"]


def on_event(text, event):
    """What an expression of the form A && 'B' || 'C' is, where A asks for a push."""
    choice = r"\$\{\{ github\.event_name == 'push' && '([^']+)' \|\| '([^']+)' \}\}"
    assert re.match(choice, text), text
    return re.sub(choice, r"\1" if event == "push" else r"\2", text)


def test_only_a_tag_that_is_pushed_publishes():
    """On PyPI. A run by hand may be of a tag as well; if it publishes, it is on TestPyPI."""
    assert WORKFLOW[True]["push"] == {"tags": ["v*"]}  # YAML reads `on` as a truth
    assert WORKFLOW[True].keys() == {"push", "workflow_dispatch"}
    assert WORKFLOW[True]["workflow_dispatch"]["inputs"]["testpypi"]["default"] is False
    trusted = {job: it for job, it in JOBS.items() if "id-token" in it.get("permissions", {})}
    assert {*trusted} == {"attest", "publish"}
    assert {it["if"] for it in trusted.values()} == {
        "github.event_name == 'push' || inputs.testpypi"
    }
    step = trusted["publish"]["steps"][-1]["with"]
    for event, host, name in (
        ("push", "upload.pypi.org", "pypi"),
        ("workflow_dispatch", "test.pypi.org", "testpypi"),
    ):
        assert on_event(step["repository-url"], event) == f"https://{host}/legacy/"
        assert on_event(trusted["publish"]["environment"], event) == name + "${{ matrix.of }}"


def test_each_project_has_an_environment_and_its_files():
    """PyPI knows new publishers by their environments. The page names them."""
    jobs = JOBS["publish"]["strategy"]["matrix"]["include"]
    page = (ROOT / "docs/releasing.md").read_text()
    assert len({job["of"] for job in jobs}) == len(jobs) == 2
    assert all(f"`{index}{job['of']}`" in page for job in jobs for index in ("pypi", "testpypi"))
    published = {
        file: ["pypi" + job["of"] for job in jobs if fnmatch(file, job["files"])]
        for file in (
            "clampgrad-1.0.0-cp311-cp311-manylinux_2_28_x86_64.whl",
            "clampgrad-1.0.0-py3-none-any.whl",
            "clampgrad-1.0.0.tar.gz",
            "clampgrad_cuda-1.0.0-cp311-cp311-manylinux_2_28_x86_64.whl",
            "clampgrad.cdx.json",
            "SHA256SUMS",
        )
    }
    assert [*published.values()] == [["pypi"], ["pypi"], ["pypi"], ["pypi-cuda"], [], []]


def test_the_workflow_tests_what_is_supported():
    """On each release of torch, and on each Python."""
    matrix = JOBS["test"]["strategy"]["matrix"]
    assert matrix["torch"] == RELEASES
    portable = [job for job in matrix["include"] if job.get("portable")]
    assert [job["torch"] for job in portable] == [release.FLOOR]
    pythons = [
        *matrix["python"],
        *(job["python"] for job in matrix["include"] if job not in portable),
    ]
    assert sorted(f"python{p}" for p in pythons) == sorted(release.PYTHONS)


def test_the_pythons_of_a_release_are_installed():
    """By the page, and by the workflow, in a container that has one of them."""
    install = "uv python install " + " ".join(p.removeprefix("python") for p in release.PYTHONS)
    assert install in (ROOT / "docs/releasing.md").read_text()
    has = re.match(r"python:([\d.]+)-", JOBS["build"]["container"])[1]
    (line,) = (step["run"] for step in JOBS["build"]["steps"] if "uv python" in str(step))
    assert install.replace(f" {has}", "") in line


def test_the_changelog_has_the_version():
    """The newest of its headings that names one."""
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    headings = re.findall(
        r"^## (\d\S*) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert headings[:1] in ([], [version])


def commit(clone, file="page"):
    """Another one, which changes a file, in a repository of whoever runs the tests."""
    with (clone / file).open("a") as written:
        written.write("x\n")
    git = ("git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b")
    checked(*git, "add", ".")
    checked(*git, "commit", "-q", "-m", "one more")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with one commit and three steps, and the command in it."""
    checked("git", "-C", tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("out/\nbroken\n")
    commit(tmp_path, "setup.py")
    lines = {"artefacts": "echo x >> out/made", "bad": "test ! -e broken", "absent": "true"}
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "NEEDS", {"absent": "no-such-tool"})
    monkeypatch.setattr(release, "OPTIONAL", ("absent",))
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    for name in ("PIP_CONSTRAINT", "RECORDS", "PYTHON"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_goes_on_where_it_was(clone):
    """What has failed runs again, what has passed does not, and another package
    starts from nothing."""
    (clone / "broken").touch()
    with pytest.raises(SystemExit, match="not passed: bad"):
        release.main()
    (clone / "broken").unlink()
    first = release.head()
    commit(clone)  # as one does to mend a test
    release.main()
    assert (clone / "out/made").read_text() == "x\n"
    found = release.ran(Path("out/release") / release.package())
    assert [row["commit"] == first for row in found.values()] == [True, False, False]
    assert {step: row.get("passed") for step, row in found.items()} == {
        "artefacts": True, "bad": True, "absent": None,
    }  # fmt: skip
    assert "no-such-tool" in release.how(found["absent"])
    commit(clone, "setup.py")
    release.main("artefacts")
    assert (clone / "out/made").read_text() == "x\nx\n"


@pytest.mark.parametrize("above", ["[tool.x]\n", None])
def test_the_address_of_the_project_is_no_part_of_the_package(clone, above):
    """It may be added after the steps have run, between other tables or at the end."""
    project, text = clone / "pyproject.toml", '[project]\nname = "a"\n\n[tool.x]\nb = 1\n'
    address = '[project.urls]\nRepository = "https://github.com/OWNER/NAME"\n'
    found = []
    for now in (
        text,
        text.replace(above, f"{address}\n{above}") if above else f"{text}\n{address}",
        text.replace("b = 1", "b = 2"),
    ):
        project.write_text(now)
        commit(clone)
        found.append(release.package())
    assert found[0] == found[1] != found[2]
    listed = release.git("ls-tree", release.head(), *release.PACKAGE)  # as it was without a table
    assert found[2] == hashlib.sha256(listed.encode()).hexdigest()[:16]


def test_what_is_in_no_commit_is_refused(clone):
    checked("git", "-C", clone, "config", "status.showUntrackedFiles", "no")  # someone's own
    (clone / "new").touch()
    with pytest.raises(SystemExit, match="git status"):
        release.main()


def commits(clone, monkeypatch):
    """How a step does it."""
    for whose in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{whose}_NAME", "a")
        monkeypatch.setenv(f"GIT_{whose}_EMAIL", "a@b")
    commit(clone)  # so that there are two
    return "git commit -q -a -m one --allow-empty"


@pytest.mark.parametrize(
    "line, why",
    [
        ("echo x >> page && COMMIT", "not those that it began with"),
        ("git checkout -q HEAD~ && git checkout -q -", "other files were checked out meanwhile"),
        ("echo x >> setup.py", "not those that it began with"),
        ("COMMIT && git checkout -q -b another && git reset -q", None),  # the same files
    ],
)
def test_a_step_during_which_files_change_has_not_passed(clone, monkeypatch, line, why):
    """Some of it has run on either."""
    line = line.replace("COMMIT", commits(clone, monkeypatch))
    monkeypatch.setattr(release, "steps", lambda out="": {"artefacts": line})
    if why is None:
        return release.main()
    with pytest.raises(SystemExit, match="not passed: artefacts"):
        release.main()
    (log,) = clone.glob("out/release/*/artefacts.log")
    assert why in log.read_text()


@pytest.mark.parametrize("case", ["another package", "a file that is written"])
def test_what_follows_runs_on_the_same_files(clone, monkeypatch, case):
    lines = {"artefacts": "echo x >> setup.py", "bad": "touch out/ran"}
    if case == "another package":
        lines["artefacts"] += f" && {commits(clone, monkeypatch)}"
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    with pytest.raises(SystemExit, match="another package now|git status"):
        release.main()
    assert not (clone / "out/ran").exists()


@pytest.mark.parametrize("name", ["ARGS", "PYTEST_ADDOPTS", "CLAMPGRAD_PORTABLE"])
def test_what_would_narrow_a_step_is_refused(clone, monkeypatch, name):
    monkeypatch.setenv(name, "--sample=1")
    with pytest.raises(SystemExit, match=f"would change what it tests: {name}"):
        release.main()


def test_a_step_ends_with_what_has_started_it(tmp_path):
    """Also where that is killed. Until then nothing starts it again."""
    line = f"echo x >> {tmp_path}/runs; sleep 600; true"
    code = f"""
import signal
from pathlib import Path
from lab.release import shell
signal.signal(signal.SIGTERM, signal.default_int_handler)
shell({line!r}, Path('log'))"""
    runs = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    while not (tmp_path / "runs").exists():
        assert runs.poll() is None
        time.sleep(0.1)
    with pytest.raises(release.RunsAlready):
        release.shell(line, tmp_path / "log")
    time.sleep(1)  # its process knows what it has started
    runs.terminate()
    runs.wait(60)
    assert release.shell("echo whole", tmp_path / "log")
    assert (tmp_path / "log").read_text() == "whole\n"
    assert (tmp_path / "runs").read_text() == "x\n"


def test_what_runs_already_does_not_end_the_others(clone, monkeypatch, capsys):
    release.main("artefacts")
    (log,) = clone.glob("out/release/*/artefacts.log")
    with log.with_name("bad.log").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(release, "NEEDS", {})
        with pytest.raises(SystemExit, match="because they run already: bad$"):
            release.main()
    assert "==> absent: yes" in capsys.readouterr().out


@pytest.mark.parametrize("left", ["", '{"step": "art', "{}", "[]"])
def test_a_row_that_was_cut_off_has_not_run(clone, left):
    release.main("artefacts")
    (row,) = clone.glob("out/release/*/artefacts.json")
    row.write_text(left)
    release.main("--list")
    release.main("artefacts")
    assert (clone / "out/made").read_text() == "x\nx\n"


def test_what_a_machine_lacks_hides_no_result(clone, monkeypatch):
    """Neither that a step has failed here, nor that it has passed elsewhere."""
    monkeypatch.setattr(release.records, "FOLDER", clone / "out/recorded")
    monkeypatch.setattr(release.records, "NEW", clone / "out/recorded")
    release.support.record({})
    monkeypatch.setattr(release, "NEEDS", {})
    release.main()
    release.main("--record")
    out, there = Path("out/release", release.package()), Path("out/there")
    out.rename(there)
    Path("out/recorded").rename("out/kept")  # it comes when this machine has tried
    monkeypatch.setattr(release, "NEEDS", {"absent": "no-such-tool"})
    release.main()
    assert "lacks" in release.ran(out)["absent"]
    Path("out/kept").rename("out/recorded")
    assert release.ran(out)["absent"]["passed"] is True
    failed = (there / "absent.json").read_text().replace("true", "false")
    (out / "absent.json").write_text(failed)
    for _ in range(2):  # it cannot run again here, and has failed still
        with pytest.raises(SystemExit, match="not passed: absent"):
            release.main()
        assert (out / "absent.json").read_text() == failed
    with pytest.raises(SystemExit, match="have not: absent"):
        release.main("--record")
    (out / "absent.json").write_text(json.dumps({"step": "absent", "on": "", "lacks": "a tool"}))
    lines = release.steps() | {"absent": "true --record="}
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    release.main("--record")  # which tests it ran is known where it ran
    assert release.records.read("release")["rows"][2]["passed"] is True


def test_what_has_failed_with_other_wheels_hides_nothing(wheels, monkeypatch):
    """Where what it needs is gone: such a step may be missing from a release."""
    wheels(a="one")
    lines = release.steps() | {"absent": "ls dist/; false"}
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    monkeypatch.setattr(release, "NEEDS", {})
    with pytest.raises(SystemExit, match="not passed: absent"):
        release.main()
    wheels(a="two")
    out = Path("out/release") / release.package()
    (out / "artefacts.json").unlink()
    monkeypatch.setattr(release, "NEEDS", {"absent": "no-such-tool"})
    release.main()
    assert "lacks" in release.ran(out)["absent"]
    release.main("--record")
    assert release.unfinished(release.records.read("release")["rows"]) == []


def test_a_step_that_passed_says_which_tests(clone, monkeypatch):
    """Without that, nothing is recorded."""
    for name in ("FOLDER", "NEW"):
        monkeypatch.setattr(release.records, name, clone / "records")
    release.support.record({})
    commit(clone)
    lines = {"artefacts": "true # --record="}
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    release.main()
    with pytest.raises(SystemExit, match=r"artefacts\.support\.json"):
        release.main("--record")
    assert not (clone / "records/release.jsonl").exists()
    (file,) = clone.glob("out/release/*/artefacts.json")
    file.with_suffix(".support.json").write_text("{}")
    for _ in range(2):  # the record, which is in no commit yet, may be made again
        release.main("--record")
    assert (clone / "records/release.jsonl").exists()


def test_without_a_commit_it_says_so(clone, monkeypatch):
    """In one sentence: where there is no repository, and where there is no git."""
    assert len(release.head()) == 40  # the folder is named alike in every clone
    (clone / ".git").rename(clone / "no-git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(clone.parent))
    with pytest.raises(SystemExit, match="^A release is of a commit.*not a git repository.*$"):
        release.main()
    monkeypatch.setenv("PATH", str(clone))
    with pytest.raises(SystemExit, match="^A release is of a commit.*'git'$"):
        release.main("--list")


@pytest.fixture
def wheels(clone, monkeypatch):
    """A function that says what a build makes from now on: wheels, with a text in each. A step
    `artefacts` makes them all, the others test them, and `pages` needs none."""
    package = Path("out/release") / release.package()
    for name in ("FOLDER", "NEW"):
        monkeypatch.setattr(release.records, name, clone / "out/recorded")
    release.support.record({})
    lines = {
        "artefacts": f": dist/; rm -rf dist; cp -r out/built dist; cp out/built.jsonl {package}/records/artefacts.jsonl",
        "tests": "test -s dist/a.whl",
        "first": "ls dist/",
        "pages": "true",
    }
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    (clone / ".git/info/exclude").write_text("dist\n")

    def build(**texts):
        built = clone / "out/built"
        shutil.rmtree(built, ignore_errors=True)
        built.mkdir(parents=True)
        for name, text in texts.items():
            with zipfile.ZipFile(built / f"{name}.whl", "w") as file:
                file.writestr("clampgrad/__init__.py", text)
                file.writestr("clampgrad-1.0.dist-info/METADATA", text[:1])
        sums = [
            f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
            for file in built.iterdir()
        ]
        (built / "SHA256SUMS").write_text("".join(sums))
        with monkeypatch.context() as patch:
            patch.setattr(records, "NEW", clone / "out")
            artefacts.main(str(built))
        (clone / "out/artefacts.jsonl").rename(clone / "out/built.jsonl")
        return built

    return build


def passed():
    found = release.ran(Path("out/release") / release.package())
    return [step for step, row in found.items() if row["passed"]]


def test_what_installs_the_wheel_waits_for_it(wheels, capsys):
    """And with other wheels in dist/, nothing counts that has tested those before."""
    built = wheels(a="one", b="one")
    with pytest.raises(SystemExit, match="the step `artefacts` makes: tests$"):
        release.main("tests", "pages")
    assert passed() == ["pages"]
    release.main()
    capsys.readouterr()
    release.main("tests")
    assert capsys.readouterr().out == "==> tests: passed before\n"
    wheels(a="two", b="one")
    shutil.copy(built / "a.whl", "dist")
    Path("out/release", release.package(), "tests.json").unlink()
    with pytest.raises(SystemExit, match="the step `artefacts` makes: tests$"):
        release.main("tests")
    assert capsys.readouterr().out == "==> dist/ is not what was tested: a.whl\n"
    release.main("artefacts")
    assert passed() == ["artefacts", "pages"]
    release.main()
    assert passed() == ["artefacts", "tests", "first", "pages"]
    wheels(a="one", b="one")  # the step is run again, as by a newer compiler
    Path("out/release", release.package(), "artefacts.json").unlink()
    release.main("artefacts")
    assert passed() == ["artefacts", "pages"]


@pytest.mark.parametrize("case", ["before", "meanwhile", "cut off"])
def test_a_step_is_of_the_wheels_that_were_made(wheels, monkeypatch, case):
    """Others that were put into dist/ are not tested, and nothing passes that has tested them."""
    built = wheels(a="one")
    release.main("artefacts")
    other = wheels(a="two").rename(built.with_name("other"))
    if case == "meanwhile":
        lines = release.steps() | {"tests": f"test -s dist/a.whl && cp {other}/a.whl dist/"}
        monkeypatch.setattr(release, "steps", lambda out="": lines)
        with pytest.raises(SystemExit, match="not passed: tests"):
            release.main("tests")
        return
    (other / "swap").write_text(
        f"cp {other}/a.whl dist/" if case == "before" else "truncate -s 20 dist/a.whl"
    )
    lines = release.steps() | {"pages": f"bash {other}/swap"}  # as somebody else may do meanwhile
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    with pytest.raises(SystemExit, match=r"which `make wheels` makes again: tests"):
        release.main("pages", "tests")
    with pytest.raises(SystemExit, match=r"makes: tests"):
        release.main("tests")  # which says what is wrong with it, and no traceback
    assert "tests" not in passed()


def test_what_makes_the_same_contents_loses_nothing(wheels, capsys):
    """The description may differ, and the tool that packs."""
    wheels(a="xone")
    release.main()
    built = wheels(a="xone")
    with zipfile.ZipFile(built / "a.whl", "a") as file:
        file.writestr("clampgrad-1.0.dist-info/WHEEL", "packed by another")
    shutil.copy(built / "a.whl", "dist")
    capsys.readouterr()
    release.main()
    assert capsys.readouterr().out.count("passed before") == 4


def test_another_machine_goes_on_from_the_record(wheels, capsys):
    """With the same wheels alone, which it has to make. Then the first one goes on from there."""
    clone, out = Path.cwd(), Path("out/release") / release.package()
    built = wheels(a="one", b="one")
    release.main("artefacts", "pages")
    release.main("--record")
    out.rename("out/first")
    shutil.rmtree("dist")
    assert passed() == ["artefacts", "pages"]
    for step in ("tests", "first"):
        with pytest.raises(SystemExit, match=f"`make wheels` makes again: {step}$"):
            release.main(step)
    shutil.copytree(built, "dist")
    (clone / "dist/b.whl").unlink()
    release.main("tests")
    with pytest.raises(SystemExit, match="`make wheels` makes again: first$"):
        release.main("first")  # it takes what is there
    (clone / "dist/a.whl").write_bytes((wheels(a="two") / "a.whl").read_bytes())
    with pytest.raises(SystemExit, match="the step `artefacts` makes: first$"):
        release.main("first", "tests")
    assert passed() == ["artefacts", "tests", "pages"]  # whoever finds the wheels loses nothing
    release.main("--record")
    shutil.copytree("out/recorded", "out/kept")
    (clone / "dist/b.whl").unlink(missing_ok=True)
    out.rename("out/second")
    release.main("artefacts")  # as with another compiler
    capsys.readouterr()
    release.main("--record")
    assert "other wheels, or are no steps now, and go: tests\n" in capsys.readouterr().out
    shutil.rmtree("out/recorded")
    Path("out/kept").rename("out/recorded")
    shutil.rmtree(out)
    (clone / "out/first").rename(out)
    shutil.rmtree("dist")
    assert passed() == ["artefacts", "tests", "pages"]
    shutil.copytree(wheels(a="one", b="one"), "dist")
    release.main("first")
    shutil.rmtree("dist")
    capsys.readouterr()
    with pytest.raises(SystemExit, match="all has passed; dist/ lacks a.whl, b.whl"):
        release.main()
    # The record of the whole has the rows of both machines, and those of a GPU.
    ran = {"test_table": {"passed": 1, "failed": 0, "commit": release.head()[:8]}}
    old = {"test_table": {"passed": 1, "failed": 0, "commit": "c0ffee00"}}
    release.support.record(
        {"2.13.0, compiled, cpu": ran, "2.10.0, compiled, cpu": old, "2.11.0, compiled, cuda": {}}
    )
    release.main("--record")
    assert {*release.support.recorded()} == {"2.13.0, compiled, cpu", "2.11.0, compiled, cuda"}
    assert [row["step"] for row in records.read("release")["rows"] if row["passed"]] == passed()
    commit(clone, "setup.py")  # another package
    release.main("--list")
    assert passed() == [] and not (Path("out/release") / release.package()).exists()


def test_what_failed_here_is_not_what_passed_there(wheels, monkeypatch):
    """Neither its row nor what its tests have left."""
    wheels(a="one")
    release.main("artefacts", "pages")
    release.main("--record")
    out = Path("out/release") / release.package()
    lines = release.steps() | {"pages": "false"}
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    (out / "pages.json").unlink()
    assert passed() == ["artefacts", "pages"]
    (out / "pages.support.json").write_text('{"2.13.0, compiled, cpu": {}}')  # of an earlier run
    release.main("--record")
    assert release.support.recorded() == {}
    Path("out/recorded/release.jsonl").unlink()
    with pytest.raises(SystemExit, match="not passed: pages"):
        release.main("pages")
    with pytest.raises(SystemExit, match="have not: pages"):
        release.main("--record")


def test_the_record_is_of_one_package(clone, monkeypatch):
    """What was recorded before goes, but what ran on a GPU; what steps have measured comes in."""
    lines = release.steps() | {"gpu": "true"}
    monkeypatch.setattr(release, "steps", lambda out="": lines)
    folder, at = clone / "out/records", release.head()
    out = Path("out/release") / release.package()
    monkeypatch.setattr(release.records, "FOLDER", folder)
    monkeypatch.setattr(release.records, "NEW", folder)
    ran = {"test_table": {"passed": 1, "failed": 0}}
    release.support.record({"2.13.0, compiled, cpu": ran, "2.11.0, compiled, cuda (H100)": ran})
    with pytest.raises(SystemExit, match=f"nothing to record.* for {out}"):
        release.main("--record")
    release.main("artefacts")
    release.main("--record")  # a part of it: what is known stays
    assert len(release.support.recorded()) == 2
    assert "Not run for this package: `bad`, `absent`, `gpu`." in release.release()
    release.main()
    (out / "bad.support.json").write_text(json.dumps({"2.15.0, compiled, cpu": ran}))
    release.records.write(out / "records/bad.jsonl", [{"cells": 3}])
    release.records.write(out / "gpu/cuda-2.15.0.jsonl", [{"cells": 4}])
    release.records.write(out / "gpu-rehearsal/cpu-2.15.0.jsonl", [{"cells": 5}])
    release.main("--record")
    assert {*release.support.recorded()} == {
        "2.11.0, compiled, cuda (H100)", "2.15.0, compiled, cpu",
    }  # fmt: skip
    assert release.records.read("bad")["rows"] == [{"cells": 3}]
    assert release.records.read("cuda-2.15.0")["rows"] == [{"cells": 4}]
    assert not (folder / "cpu-2.15.0.jsonl").exists()  # a rehearsal measures nothing
    found = release.records.read("release")
    assert found["commit"] == at
    assert [row.get("passed") for row in found["rows"]] == [True, True, None, True]
    shown = release.release()
    assert "| `artefacts` |" in shown and "Not run" not in shown
    monkeypatch.setattr(release, "OPTIONAL", ())
    assert "Not run for this package: `absent`." in release.release()
    commit(clone)  # of what was recorded: that may be done again
    release.main("--record")
    assert release.records.read("release")["rows"] == found["rows"]
    found = release.records.read("release")
    commit(clone, "setup.py")  # of what was recorded: nothing has run there, and the record stays
    with pytest.raises(SystemExit, match="nothing to record"):
        release.main("--record")
    assert release.records.read("release") == found
