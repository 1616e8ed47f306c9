"""One wheel out of several: the libraries of all, and a record that holds."""

import hashlib
import json
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

pytest.importorskip("wheel", reason="wheels are packed with it: pip install wheel")

from tools import support, wheels  # noqa: E402
from tools.support import (  # noqa: E402
    IMPORTING,
    PAGE,
    RUNS,
    built,
    cell,
    of_another_kind,
    page,
    pythons_missing,
    table,
)
from tools.wheels import companion, merge  # noqa: E402

INFO = "clampgrad-1.0.dist-info"


def digest(data):
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def a_wheel(folder, library):
    folder.mkdir()
    files = {
        "clampgrad/__init__.py": b"",
        f"clampgrad/_lib/{library}/_C.so": library.encode(),
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: clampgrad\nVersion: 1.0\n",
        f"{INFO}/licenses/LICENSE": b"",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n",
    }
    record = [f"{name},{digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{INFO}/RECORD"] = "".join([*record, f"{INFO}/RECORD,,\n"]).encode()
    path = folder / "clampgrad-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_merge(tmp_path):
    names = ["torch_2_11", "torch_2_13", "torch_2_15"]
    merged = merge([a_wheel(tmp_path / name, name) for name in names], tmp_path)
    with zipfile.ZipFile(merged) as archive:
        record = archive.read(f"{INFO}/RECORD").decode()
        for name in names:
            path = f"clampgrad/_lib/{name}/_C.so"
            data = archive.read(path)
            assert data == name.encode()
            assert f"{path},{digest(data)},{len(data)}" in record


def test_libraries_with_cuda_are_a_distribution_of_their_own(tmp_path):
    """It adds files to the package, and has none of the other distribution's."""
    path = "clampgrad/_lib/torch_2_11_cu13/_C.so"
    info = "clampgrad_cuda-1.0.dist-info"
    wheel = companion(a_wheel(tmp_path / "whole", "torch_2_11_cu13"), tmp_path / "out")
    assert wheel.name == "clampgrad_cuda-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        of_info = {f"{info}/{n}" for n in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        assert set(archive.namelist()) == {path} | of_info
        assert "\nRequires-Dist: clampgrad ==1.0\n" in archive.read(f"{info}/METADATA").decode()


def test_a_wheel_is_for_every_gpu_not_for_the_one_that_is_here(monkeypatch):
    seen = []
    monkeypatch.setattr(wheels, "merge", lambda built, out: built)
    monkeypatch.setattr(wheels, "build", lambda *given, **variables: seen.append(variables))
    wheels.compiled("source", ["python"], Path("out"), cuda="1")
    assert [v["CUDA_VISIBLE_DEVICES"] for v in seen] == [""]


def test_a_wheel_for_arm64_is_one_more(monkeypatch, tmp_path):
    """Of its own environments, without CUDA, and tagged as the one for this machine is."""
    tagged, dist = [], tmp_path / "dist"

    def run(*command, **variables):
        if "sdist" in command:
            (dist / "clampgrad-1.0.tar.gz").touch()
        return ""

    monkeypatch.setattr(wheels, "run", run)
    monkeypatch.setattr(wheels, "build", lambda *given, **variables: a_wheel(tmp_path / "p", "l"))
    monkeypatch.setattr(wheels, "compiled", lambda source, pythons, out, cuda: (pythons, cuda))
    monkeypatch.setattr(wheels, "tag", lambda wheel, dist: tagged.append(wheel))
    wheels.main(dist, ["here"], [], ["emulated"])
    assert tagged == [(["here"], "0"), (["emulated"], "0")]


def test_a_cell_of_the_support_page_says_what_ran():
    ran, failed = {"passed": 3, "failed": 0}, {"passed": 3, "failed": 1}
    files = ["test_a", "test_b"]
    assert cell({"test_a": ran, "test_b": ran}, files) == "tested"
    assert cell({"test_a": ran}, files) == "partly"
    assert cell({"test_a": ran, "test_b": failed}, files) == "1 of 7 failed"
    assert cell({"test_a": {"passed": 0, "failed": 0}}, files) == cell(None, files) == "untried"
    assert cell({}, files, "compiled") == "built" and cell(None, files, "compiled") == "untried"


def test_the_support_page_has_a_row_for_every_release(tmp_path):
    runs = {"2.13.0+cpu, compiled, cpu": {"test_export": {"passed": 3, "failed": 0}}}
    runs |= built(a_wheel(tmp_path / "w", "torch_2_12"), runs)
    seconds = {"compiled": {"median": 0.05}, "portable": {"median": 0.1}}
    importing = {"torch": "2.13.0", "python": "3.11", "runs": 3, "seconds of CPU": seconds}
    lines = page(runs, importing).splitlines()
    assert "| 2.12 | compiled | cpu |" + " built |" * 7 in lines
    assert "| 2.12 | portable | cpu |" + " untried |" * 7 in lines
    assert "| 2.15 | compiled | cpu |" + " untried |" * 7 in lines
    (line,) = (line for line in lines if line.startswith("| 2.13.0+cpu | compiled"))
    assert line.count("built") == 6 and line.count("tested") == 1
    assert any("50 ms" in line for line in lines)


def test_the_support_page_says_what_ran_elsewhere():
    """What a run adds to the table of all features, it does not add to that of the rest, and vice versa."""
    of_file = {"passed": 1000, "failed": 1, "seconds": 7}
    runs = {
        "2.13.0, compiled, cpu (Python 3.12)": {"test_a": of_file, "test_b": of_file},
        "2.13.0, portable, cpu (emulated aarch64)": {"test_a": of_file},
    }
    assert of_another_kind(runs).splitlines()[2:] == [
        "| Python 3.12 | 2.13.0 | compiled | a, b | 2,000 | 2 | 14 |",
        "| emulated aarch64 | 2.13.0 | portable | a | 1,000 | 1 | 7 |",
    ]
    assert "Python 3.12" not in table(runs)
    assert pythons_missing(runs) == "No test has run on Python 3.10, 3.13, 3.14."
    assert pythons_missing({f"(Python {p})": {} for p in support.PYTHONS}) == ""


def test_the_support_page_is_that_of_the_committed_runs():
    assert PAGE.read_text() == page(*(json.loads(path.read_text()) for path in (RUNS, IMPORTING)))
