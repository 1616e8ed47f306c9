"""What the workflows publish and test. Every session and target that a file names exists."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from buildtools.library import PROJECT, PYTHONS, VERSION
from buildtools.torch_here import RELEASES
from testing.processes import run_checked

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib  # which pytest requires on Python 3.10

ROOT = Path(__file__).parents[2]
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
    assert [job["torch"].removesuffix(".0") for job in portable] == re.findall(
        'torch>=(.*)"', PROJECT
    )
    others = [job["python"] for job in matrix["include"] if job not in portable]
    assert sorted([*matrix["python"], *others]) == sorted(PYTHONS)


def test_the_pythons_of_a_release_are_installed():
    """By the page, and by the workflow, in a container that has one of them."""
    install = "uv python install " + " ".join(PYTHONS)
    assert install in (ROOT / "docs/releasing.md").read_text()
    has = re.match(r"python:([\d.]+)-", JOBS["build"]["container"])[1]
    (line,) = (step["run"] for step in JOBS["build"]["steps"] if "uv python" in str(step))
    assert install.replace(f" {has}", "") in line


def test_the_changelog_begins_with_the_version():
    """With the day of its release, or "unreleased"."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert re.fullmatch(rf"{re.escape(VERSION)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", headings[0])


@pytest.fixture(scope="module")
def sessions():
    """The sessions of noxfile.py, with their parameters, as nox itself lists them."""
    nox = ROOT / ".venv/nox/bin/nox"
    if not nox.exists():
        pytest.skip(f"there is no nox: `make {nox.relative_to(ROOT)}`, as .ci/run does")
    words = ("--list", "--json", "-k", "lint or not lint")  # without -k, it lists lint alone
    return json.loads(run_checked(nox, *words, cwd=ROOT))


def test_ci_runs_every_part(sessions):
    """Those of .ci/parts.toml, each once."""
    script = (ROOT / ".ci/run").read_text()
    looped = re.search(r"^for part in ([\w ]+); do .* \"ci\(\$part\)\"", script, re.M)[1].split()
    alone = re.findall(r"\"ci\((\w+)\)\"", script)
    parts = [s["call_spec"]["part"] for s in sessions if s["name"] == "ci"]
    assert sorted(looped + alone) == sorted(parts) != []


def paths_in(words):
    """The files and folders that an argument of pytest names, as patterns."""
    for word in words:
        path = word.rpartition("=")[2].partition("::")[0]
        if path.startswith(("test", "lab", "*/")):
            yield path.replace("*/", "test/**/")


def test_what_ci_runs_exists(sessions):
    """Its sessions; and each path, because pytest ignores what does not exist without a word."""
    releases = {"OLDEST": RELEASES[0], "NEWEST": RELEASES[-1]}
    releases["USUAL"] = run_checked("make", "-s", "print-TORCH", cwd=ROOT).strip()
    parts = tomllib.loads((ROOT / ".ci/parts.toml").read_text())
    runs = {name: words for part in parts.values() for name, words in part.items()}
    names = {re.sub("[A-Z]+", lambda release: releases[release[0]], name) for name in runs}
    assert names <= {s["session"] for s in sessions}
    patterns = [pattern for words in runs.values() for pattern in paths_in(words)]
    assert len(patterns) > 20 and [p for p in patterns if not any(ROOT.glob(p))] == []


def test_sessions_and_targets_that_are_named_exist(sessions):
    """By pages, scripts, workflows and messages."""
    known = {s["name"] for s in sessions}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    endings = (".md", ".sh", ".py", ".yml", ".ipynb", ".h", ".cpp", ".toml", ".ci/run")
    files = [
        ROOT / f for f in run_checked("git", "ls-files", cwd=ROOT).split() if f.endswith(endings)
    ]
    name_count = 0
    for file in files:
        text = file.read_text()
        session_names = re.findall(r"nox -s \"?([a-z]\w+)", text)
        target_names = re.findall(r"`make ([a-z][\w-]+)|^make (\w+) +#", text, re.M)
        assert {*session_names} <= known and {"".join(m) for m in target_names} <= {*targets}, file
        name_count += len(session_names)
    assert name_count > 20
