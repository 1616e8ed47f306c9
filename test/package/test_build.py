"""pip builds and installs the sources: sdist, wheel, installed twice,
uninstalled, editable, in isolation.

Every test compiles, which takes minutes; `nox -s package` runs them, on one release of torch.
"""

import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from testing.processes import run_checked
from testing.quick_build import copy_to

ROOT = Path(__file__).resolve().parents[2]
TORCH = torch.__version__.split("+")[0]
LIBRARY = "torch_" + "_".join(TORCH.split(".")[:2])
CONSTRAINTS = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")  # newer releases of pip read the second
pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The source distribution, unpacked elsewhere, so that a missing file is noticed."""
    folder = tmp_path_factory.mktemp("sdist")
    copy_to(folder / "checkout")
    script = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    run_checked(sys.executable, "-c", script, cwd=folder / "checkout")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture
def environment(tmp_path):
    """An environment of its own that sees this one's packages; returns its Python."""
    run_checked(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment")
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    (site / "this.pth").write_text(f"{Path(torch.__file__).parent.parent}\n")
    return tmp_path / "environment/bin/python"


def pip(*arguments, **keywords):
    run_checked(sys.executable, "-m", "pip", *arguments, **keywords)


def file_of(environment, folder):
    """Computes a gradient with the package, and returns where the package is."""
    script = """
import clampgrad, torch
x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
clampgrad.clamp(x, 0, 1).sum().backward()
assert x.grad.tolist() == [0, 1, 0]
print(clampgrad.__file__)
"""
    return Path(run_checked(environment, "-c", script, cwd=folder).strip())


def test_a_wheel_built_in_isolation(sources, environment, tmp_path):
    """pip fetches what pyproject.toml asks for; held to this release, so that the wheel is for it.
    The wheel can be installed twice, and uninstalled."""
    (tmp_path / "constraints.txt").write_text(f"torch=={TORCH}\n")
    held = {name: str(tmp_path / "constraints.txt") for name in CONSTRAINTS}
    pip("wheel", "--no-deps", "-w", tmp_path, sources, env=os.environ | held)
    (wheel,) = tmp_path.glob("*.whl")
    assert any(f"/{LIBRARY}/_C." in name for name in zipfile.ZipFile(wheel).namelist())
    for _ in range(2):
        pip("--python", environment, "install", "--no-deps", "--force-reinstall", wheel)
        package = file_of(environment, tmp_path).parent
        assert package.is_relative_to(environment.parent.parent)
    pip("--python", environment, "uninstall", "-y", "clampgrad")
    assert not package.exists()


def test_editable(sources, environment, tmp_path):
    pip("--python", environment, "install", "--no-build-isolation", "--no-deps", "-e", sources)
    assert file_of(environment, tmp_path).is_relative_to(sources)
    with open(sources / "python/clampgrad/__init__.py", "a") as file:
        file.write("edited = True\n")
    run_checked(environment, "-c", "import clampgrad; assert clampgrad.edited", cwd=tmp_path)
