"""One wheel made from several has all their libraries, and a record that is right."""

import os
import re
import shutil
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

WheelFile = pytest.importorskip("wheel.wheelfile", reason="pip install wheel").WheelFile
pytest.importorskip("packaging", reason="pip install packaging")
from packaging.tags import cpython_tags  # noqa: E402
from packaging.utils import parse_wheel_filename  # noqa: E402
from setuptools._distutils.ccompiler import new_compiler  # noqa: E402
from setuptools._distutils.sysconfig import customize_compiler  # noqa: E402

from buildtools import library, wheels  # noqa: E402

INFO = "clampgrad-1.0.dist-info"


def a_wheel(folder, name, pythons=("311",)):
    folder.mkdir()
    path = folder / "clampgrad-1.0-cp311-cp311-linux_x86_64.whl"
    with WheelFile(path, "w") as wheel:
        wheel.writestr("clampgrad/__init__.py", b"")
        for python in pythons:
            wheel.writestr(f"clampgrad/_lib/{name}/_C.cpython-{python}-x86_64-linux-gnu.so", name)
        wheel.writestr(f"clampgrad/_lib/{name}/{library.LIBRARY}", name)
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: clampgrad\nVersion: 1.0\n")
        wheel.writestr(f"{INFO}/licenses/LICENSE", b"")
        about = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"
        wheel.writestr(f"{INFO}/WHEEL", about)
    return path


def test_merge(tmp_path):
    """Reading a file that the record does not list is an error. pip takes the wheel for the Pythons
    whose modules it has, and for no other."""
    names, pythons = ["torch_2_11", "torch_2_13", "torch_2_15"], ("310", "311", "314")
    merged = wheels.merge([a_wheel(tmp_path / name, name, pythons) for name in names], tmp_path)
    with WheelFile(merged) as wheel:
        for name in names:
            assert wheel.read(f"clampgrad/_lib/{name}/{library.LIBRARY}") == name.encode()
    _, _, _, tags = parse_wheel_filename(merged.name)
    taken = {p for p in ("39", "310", "311", "312", "314") if tags & {*cpython_tags_of(p)}}
    assert taken == {*pythons}


def cpython_tags_of(python):
    version = (int(python[0]), int(python[1:]))
    return cpython_tags(version, [f"cp{python}"], ["linux_x86_64"])


def test_a_library_that_lacks_a_module_is_an_error(tmp_path):
    made = [a_wheel(tmp_path / "a", "a", ("310", "311")), a_wheel(tmp_path / "b", "b")]
    with pytest.raises(SystemExit, match="cp310"):
        wheels.merge(made, tmp_path)


def test_libraries_with_cuda_are_a_distribution_of_their_own(tmp_path):
    """It adds files to the package, and has none of the other distribution's."""
    folder = "clampgrad/_lib/torch_2_11_cu13"
    files = {f"{folder}/_C.cpython-311-x86_64-linux-gnu.so", f"{folder}/{library.LIBRARY}"}
    info = "clampgrad_cuda-1.0.dist-info"
    wheel = wheels.make_cuda_wheel(a_wheel(tmp_path / "whole", "torch_2_11_cu13"), tmp_path / "out")
    assert wheel.name == "clampgrad_cuda-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        of_info = {f"{info}/{n}" for n in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        assert set(archive.namelist()) == files | of_info
        assert "\nRequires-Dist: clampgrad ==1.0\n" in archive.read(f"{info}/METADATA").decode()


@pytest.mark.parametrize("releases, each", [(1, "4"), (3, "1"), (5, "1")])
def test_builds_share_the_jobs(monkeypatch, releases, each):
    """And a wheel is for every GPU, not for the one that is here."""
    seen = []
    monkeypatch.setenv("MAX_JOBS", "4")
    monkeypatch.setattr(wheels, "merge", lambda built, out: built)
    monkeypatch.setattr(wheels, "build", lambda *given, **variables: seen.append(variables))
    wheels.build_compiled_wheel("source", ["python"] * releases, Path("out"), ["here"], cuda="1")
    assert [(v["MAX_JOBS"], v["CUDA_VISIBLE_DEVICES"]) for v in seen] == [(each, "")] * releases


def test_a_source_distribution_is_the_same_wherever_it_is_made(tmp_path):
    """Whoever packs it, when, and in whatever order."""
    made = []
    for mode, names in ((0o600, "ab"), (0o664, "ba")):
        folder = tmp_path / str(mode) / "clampgrad-1.0"
        folder.mkdir(parents=True)
        (folder / "run").write_text("#!/bin/sh\n")
        (folder / "run").chmod(mode | 0o100)
        for name in names:
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
        packed = folder.parent / "a.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            for file in (folder, *folder.iterdir()):
                archive.add(
                    file, f"clampgrad-1.0/{file.name}".replace("1.0/clampgrad-1.0", "1.0"), False
                )
        wheels.normalize_sdist(packed)
        made.append(packed.read_bytes())
        shutil.unpack_archive(packed, tmp_path / f"unpacked-{mode}")
        unpacked = tmp_path / f"unpacked-{mode}/clampgrad-1.0"
        assert {f.name: f.read_text() for f in unpacked.iterdir()} == {
            "a": "a", "b": "b", "run": "#!/bin/sh\n",
        }  # fmt: skip
        assert (unpacked / "run").stat().st_mode & 0o111 and not (
            unpacked / "a"
        ).stat().st_mode & 0o111
    assert made[0] == made[1]


def test_a_link_in_a_source_distribution_is_refused(tmp_path):
    """It would lose what it points to."""
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to("a")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "b", "clampgrad-1.0/b")
    with pytest.raises(SystemExit, match="clampgrad-1.0/b"):
        wheels.normalize_sdist(tmp_path / "a.tar.gz")


def test_the_flags_of_a_user_are_kept(monkeypatch):
    """And Python's own, -fwrapv among them, beside those that make a build reproducible. A folder
    may have a space in its name."""
    monkeypatch.setattr(wheels, "ROOT", Path("/my clone"))
    commands = []
    for ours in (False, True):
        for name in ("CPPFLAGS", "CXXFLAGS", "NVCC_APPEND_FLAGS"):
            monkeypatch.setenv(name, "-DMINE")
        for name, text in wheels.reproducible().items() if ours else ():
            monkeypatch.setenv(name, text)
        compiler = new_compiler()
        customize_compiler(compiler)
        commands.append(compiler.compiler_so_cxx)
    without, added = commands
    assert [flag for flag in added if "prefix-map" not in flag] == without
    assert "-ffile-prefix-map=/my clone/=" in added and "-DMINE" in without
    assert os.environ["NVCC_APPEND_FLAGS"].split()[0] == "-DMINE"


# ---- The Pythons --------------------------------------------------------------------------------


def test_a_python_is_named_by_its_headers_or_its_command(tmp_path):
    """A folder of headers says which Python it is of, and need not be this one's."""
    here = library.this_python()
    assert here.module.endswith(tuple(EXTENSION_SUFFIXES))
    assert library.python_of(str(here.headers)) == here == library.python_of(sys.executable)
    version = "#define PY_MAJOR_VERSION\t3\n#define PY_MINOR_VERSION\t14\n"
    (tmp_path / "patchlevel.h").write_text(version)
    other = library.python_of(str(tmp_path))
    module = re.sub(r"cpython-\d+", "cpython-314", here.module)
    assert other == library.Python(tmp_path, module)
    (tmp_path / "patchlevel.h").unlink()
    with pytest.raises(SystemExit, match="no headers"):
        library.python_of(str(tmp_path))
    with pytest.raises(SystemExit, match="no Python, and no folder"):
        library.python_of(str(tmp_path / "python3.14"))


def test_pythons_without_headers_are_passed_over(tmp_path, monkeypatch):
    """Those on PATH that the project is for; a name that pyenv has not chosen is none."""
    for version, body in (("3.10", "exit 127"), ("3.12", f"echo {tmp_path}"), ("3.9", "exit 1")):
        script = tmp_path / f"python{version}"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(library, "PYTHONS", ["3.10", "3.12"])
    assert library.pythons_here() == []
    (tmp_path / "patchlevel.h").write_text(
        "#define PY_MAJOR_VERSION 3\n#define PY_MINOR_VERSION 12\n"
    )
    assert library.pythons_here() == [str(tmp_path)]
