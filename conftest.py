import importlib.metadata
import os
import sys

import pytest
import torch

import clampgrad
from clampgrad.cli import main
from testing.cases import has_kernels
from testing.graph_caches import no_graph_caches
from testing.processes import package_path, run
from testing.releases import RELEASE

TIMES_GUARDS = "profile_guard_manager"
TINY = sys.float_info.min


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests make their tensors")


def pytest_configure(config):
    # COLUMNS decides how wide tables are printed, and workers of xdist set it.
    os.environ.pop("COLUMNS", None)
    # Before the tests are collected: some make tensors when they are imported.
    if config.getoption("device") == "mock":
        from testing import mock_device  # it needs a compiler, and setuptools

        mock_device.register()
    if config.getoption("device") != "cpu":
        torch.set_default_device(config.getoption("device"))


def pytest_runtest_setup(item):
    unmet = {
        "compiled": clampgrad.implementation != "compiled" and "needs the compiled implementation",
        "of_cpus": torch.get_default_device().type != "cpu" and "of CPUs alone",
        "of_kernels": not has_kernels() and "needs kernels for this device",
    }
    for name, needs in unmet.items():
        if needs and (marker := item.get_closest_marker(name)):
            pytest.skip(f"{needs}: {marker.args[0]}")


@pytest.fixture(autouse=True)
def same_start():
    """Every test begins alike. One thread is quicker here; tests that need more say so."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if guards := sys.modules.get("torch._dynamo.guards"):
        # For its log, each compilation empties the CPU's caches and times its
        # guards: 0.1 s. Setting a name that is gone would have no effect. Releases
        # before 2.11 are slow, but right.
        renamed = f"torch renamed {TIMES_GUARDS}"
        assert hasattr(guards, TIMES_GUARDS) or RELEASE < (2, 11), renamed
        setattr(guards, TIMES_GUARDS, lambda *given: 0.0)
    yield
    # A library that was linked with -ffast-math sets this when it is loaded.
    is_flushed = TINY / 2 == 0
    torch.set_flush_denormal(False)
    assert not is_flushed, "the test left subnormal numbers flushed"


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def backend(request):
    """What compiles: Inductor fuses, and computes in float32 what has 16 bits. Its C++
    takes seconds to compile, so `.ci/run` leaves most of it to the matrix and
    test_pin_compile.py, and the rest to `nox -t release`."""
    torch._dynamo.reset()
    with no_graph_caches():
        yield request.param


@pytest.fixture
def folder_of_programs(tmp_path, monkeypatch):
    """An empty folder, to run programs from in this process; their changes to sys are undone."""
    monkeypatch.chdir(tmp_path)
    for name in ("path", "argv"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return tmp_path


@pytest.fixture
def command(capsys):
    """Runs `clampgrad` in this process -> its exit code, what it printed, what it complained of."""

    def command(*words):
        try:
            code = main([*map(str, words)])
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return command


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A PYTHONPATH by which Python finds the package and its entry point, installed or not."""
    points = importlib.metadata.entry_points(group="torch.backends")
    if any(p.name == "clampgrad" for p in points):
        return os.pathsep.join(package_path())
    folder = tmp_path_factory.mktemp("metadata")
    (folder / "clampgrad-0.dist-info").mkdir()
    (folder / "clampgrad-0.dist-info/METADATA").write_text("Name: clampgrad\nVersion: 0\n")
    (folder / "clampgrad-0.dist-info/entry_points.txt").write_text(
        "[torch.backends]\nclampgrad = _clampgrad_by_environment:pin\n"
    )
    return os.pathsep.join([*package_path(), str(folder)])


@pytest.fixture
def program(installed, tmp_path):
    """Runs Python in an empty folder, in an environment without a pin; it may fail."""
    names = ("CLAMPGRAD_GRADIENT", "CLAMPGRAD_VERBOSE", "TORCH_DEVICE_BACKEND_AUTOLOAD")
    env = {k: v for k, v in os.environ.items() if k not in names}
    env |= {"PYTHONPATH": installed, "OMP_NUM_THREADS": "1"}
    return lambda *command, **variables: run(
        sys.executable, *command, env={**env, **variables}, cwd=tmp_path
    )
