"""One wheel made from several has all their libraries, and a record that is right."""

import zipfile
from pathlib import Path

import pytest

WheelFile = pytest.importorskip("wheel.wheelfile", reason="pip install wheel").WheelFile

from buildtools import wheels  # noqa: E402

INFO = "clampgrad-1.0.dist-info"


def a_wheel(folder, library):
    folder.mkdir()
    path = folder / "clampgrad-1.0-cp311-cp311-linux_x86_64.whl"
    with WheelFile(path, "w") as wheel:
        wheel.writestr("clampgrad/__init__.py", b"")
        wheel.writestr(f"clampgrad/_lib/{library}/_C.so", library)
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: clampgrad\nVersion: 1.0\n")
        wheel.writestr(f"{INFO}/licenses/LICENSE", b"")
        about = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"
        wheel.writestr(f"{INFO}/WHEEL", about)
    return path


def test_merge(tmp_path):
    """Reading a file that the record does not list is an error."""
    names = ["torch_2_11", "torch_2_13", "torch_2_15"]
    merged = wheels.merge([a_wheel(tmp_path / name, name) for name in names], tmp_path)
    with WheelFile(merged) as wheel:
        for name in names:
            assert wheel.read(f"clampgrad/_lib/{name}/_C.so") == name.encode()


def test_libraries_with_cuda_are_a_distribution_of_their_own(tmp_path):
    """It adds files to the package, and has none of the other distribution's."""
    path = "clampgrad/_lib/torch_2_11_cu13/_C.so"
    info = "clampgrad_cuda-1.0.dist-info"
    wheel = wheels.companion(a_wheel(tmp_path / "whole", "torch_2_11_cu13"), tmp_path / "out")
    assert wheel.name == "clampgrad_cuda-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        of_info = {f"{info}/{n}" for n in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        assert set(archive.namelist()) == {path} | of_info
        assert "\nRequires-Dist: clampgrad ==1.0\n" in archive.read(f"{info}/METADATA").decode()


@pytest.mark.parametrize("releases, each", [(1, "4"), (3, "1"), (5, "1")])
def test_builds_share_the_jobs(monkeypatch, releases, each):
    """And a wheel is for every GPU, not for the one that is here."""
    seen = []
    monkeypatch.setenv("MAX_JOBS", "4")
    monkeypatch.setattr(wheels, "merge", lambda built, out: built)
    monkeypatch.setattr(wheels, "build", lambda *given, **variables: seen.append(variables))
    wheels.compiled("source", ["python"] * releases, Path("out"), cuda="1")
    assert [(v["MAX_JOBS"], v["CUDA_VISIBLE_DEVICES"]) for v in seen] == [(each, "")] * releases
