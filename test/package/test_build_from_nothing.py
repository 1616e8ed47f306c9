"""A build packs what it has made and nothing else, and says what it lacks. These tests need no compiler."""

import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from buildtools import stamp
from common import BARE, checked, run

ROOT = Path(__file__).resolve().parents[2]
STALE = ("_lib/torch_2_13/_C.so", "gone.py")
WRITTEN = (
    *("_implementation/build.py", "_contract/gradients.py"),
    *("_contract/schemas.json", "_contract/table.json"),
)  # into the package


def setup(tree, *command):
    env = os.environ | BARE | {"CLAMPGRAD_PORTABLE": "1"}
    checked(sys.executable, "setup.py", "-q", *command, cwd=tree, env=env)


def test_nothing_of_an_earlier_build_is_packed(tree, tmp_path):
    """What earlier builds leave in setuptools' folder and beside the sources."""
    left = [f"build/lib/clampgrad/{name}" for name in STALE]
    for name in (*left, *(f"python/clampgrad/{name}" for name in (STALE[0], *WRITTEN))):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("stale")
    setup(tree, "bdist_wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0].split("-")[0] for name in archive.namelist()}
        assert top == {"clampgrad", "_clampgrad_by_environment.py"}
        packed = {name.removeprefix("clampgrad/") for name in archive.namelist()}
        assert packed >= {"py.typed", "_C.pyi", *WRITTEN} and not packed & {*STALE}
        for name in WRITTEN:
            assert archive.read(f"clampgrad/{name}") != b"stale"
    setup(tree, "sdist", "-d", tmp_path)
    (sources,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        names = [name.partition("/python/clampgrad/")[2] for name in archive.getnames()]
    assert "__init__.py" in names and not {*names} & {*STALE, *WRITTEN}


def test_the_hash_is_of_all_that_a_library_is_made_from(tree):
    of_sources = stamp.sources(tree)
    assert of_sources == stamp.sources(ROOT)
    for name in ("csrc/base/bits.h", "codegen/generate.py", "derivatives.yaml", "conventions.yaml"):
        text = (tree / name).read_text()
        (tree / name).write_text(f"{text}\n")
        assert stamp.sources(tree) != of_sources, name
        (tree / name).write_text(text)
    shutil.move(tree / "csrc/base/bits.h", tree / "csrc/base/other.h")
    assert stamp.sources(tree) != of_sources


def test_an_old_setuptools_is_one_sentence(tmp_path):
    (tmp_path / "setuptools.py").write_text("__version__ = '65.5.0'\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = run(sys.executable, "-c", "import buildtools.backend", cwd=ROOT, env=env)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended.stderr
    assert all(part in ended.stderr for part in ("setuptools 77", "65.5.0", "pip install"))
