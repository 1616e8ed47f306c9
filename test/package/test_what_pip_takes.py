"""What `pip install clampgrad` takes from dist/ on each machine."""

import re
import sys
from pathlib import Path

import pytest

from testing.processes import run

pytestmark = pytest.mark.thorough
DIST = Path(__file__).resolve().parents[2] / "dist"
PORTABLE = "-py3-none-any.whl"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The wheel with libraries, and its platform."""
    for wheel in DIST.glob("clampgrad-*linux*.whl"):
        return wheel.name, re.search(r"(manylinux_\d+_\d+)_x86_64", wheel.name)[1]
    pytest.skip("there is no dist/ with a wheel for Linux: `nox -s wheels` makes it")


def download(folder, platform, python):
    where = ("--platform", platform, "--python-version", python, "--implementation", "cp")
    offline = ("-q", "--no-index", "--find-links", DIST, "--no-deps", "--only-binary=:all:")
    return run(sys.executable, "-m", "pip", "download", *offline, *where, "-d", folder, "clampgrad")


def taken(folder, platform, python=HERE):
    ended = download(folder, platform, python)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = folder.iterdir()
    return wheel.name


def test_pip_takes_compiled_wheel_on_linux(tmp_path, compiled):
    name, platform = compiled
    assert taken(tmp_path, f"{platform}_x86_64") == name
    assert int(platform.rpartition("_")[2]) <= 28  # the glibc that torch's own wheels need


@pytest.mark.parametrize("platform, python", [
    ("win_amd64", HERE),
    ("macosx_14_0_arm64", HERE),
    ("musllinux_1_2_x86_64", HERE),
    ("manylinux_2_17_x86_64", HERE),  # a Linux that is older than what the libraries were linked with
    ("{here}_aarch64", HERE),
    ("{here}_x86_64", "3.99"),
])  # fmt: skip
def test_where_no_library_runs_pip_takes_the_portable_wheel(tmp_path, compiled, platform, python):
    assert taken(tmp_path, platform.format(here=compiled[1]), python).endswith(PORTABLE)


def test_a_python_that_is_too_old_is_refused(tmp_path):
    """pip names the Pythons that the package wants."""
    ended = download(tmp_path, "any", "3.9")
    assert ended.returncode and ">=3.10" in ended.stderr
