import importlib.metadata
import json
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad.cli import main
from common import RELEASE, has_kernels, package_path, run

TIMES_GUARDS = "profile_guard_manager"


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests make their tensors")
    parser.addoption("--record", help="the file to add this run to (lab/support.py)")
    machine = platform.machine()
    parser.addoption(
        "--unlike",
        default="" if machine in ("x86_64", "AMD64") else machine,
        help="what that file calls a run that is not on x86-64, or of another compiler or Python",
    )


def pytest_configure(config):
    # COLUMNS decides how wide tables are printed, and workers of xdist set it.
    os.environ.pop("COLUMNS", None)
    # Before the tests are collected: some make tensors when they are imported.
    if config.getoption("device") == "mock":
        import mock_device  # it needs a compiler, and setuptools

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


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def backend(request):
    """What compiles: Inductor fuses, and computes in float32 what has 16 bits. Its C++
    takes seconds to compile, so `.ci/run` leaves it to the matrix and test_pin_compile.py,
    and the rest to `make release`."""
    torch._dynamo.reset()
    # Its cache does not know our formulas: a stale entry would test yesterday's.
    with torch._inductor.config.patch(force_disable_caches=True):
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
    ours = ("CLAMPGRAD_GRADIENT", "CLAMPGRAD_VERBOSE", "TORCH_DEVICE_BACKEND_AUTOLOAD")
    env = {k: v for k, v in os.environ.items() if k not in ours}
    env |= {"PYTHONPATH": installed, "OMP_NUM_THREADS": "1"}
    return lambda *command, **variables: run(
        sys.executable, *command, env={**env, **variables}, cwd=tmp_path
    )


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Adds to the file of --record how many tests of each file passed and failed, and on what; and
    that these are not all, if something has interrupted them."""
    if not config.getoption("record"):
        return
    import records  # which a copy of the tree may lack

    counts = defaultdict(lambda: {"passed": 0, "failed": 0, "seconds": 0})
    for outcome, counted in (("passed", "passed"), ("failed", "failed"), ("error", "failed")):
        for report in terminalreporter.stats.get(outcome, []):
            of_file = counts[Path(report.nodeid.split("::")[0]).stem]
            of_file[counted] += 1
            # A file that cannot be imported has none.
            of_file["seconds"] += getattr(report, "duration", 0)
    session = config.pluginmanager.get_plugin("session")
    cut_off = exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldfail
    for of_file in counts.values():
        of_file |= {"seconds": round(of_file["seconds"]), "commit": records.commit()}
        of_file |= {"cut_off": True} if cut_off else {}
    path = Path(config.getoption("record"))
    runs = json.loads(path.read_text()) if path.exists() else {}
    device, unlike = config.getoption("device"), config.getoption("unlike")
    name = f"{torch.__version__}, {clampgrad.implementation}, {device}"
    name += f" ({unlike})" if unlike else ""
    runs.setdefault(name, {}).update(counts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(runs, indent=1) + "\n")
