"""Programs on packages from PyPI that have never heard of clampgrad, audited: which sites are found."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "third_party"
PACKAGES = ["gpytorch==1.15.2", "stable-baselines3==2.9.2"]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment of its own, which borrows torch and clampgrad from this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    executable = folder / "bin" / "python"
    subprocess.run([executable, *("-m", "pip", "install", "--quiet"), *PACKAGES], check=True)
    return executable


@pytest.fixture
def audited(python, tmp_path):
    def run(program):
        """What it prints, which must be what it prints alone; the table; the sites."""
        script, report = PROGRAMS / program, tmp_path / "audit.json"
        alone = subprocess.run([python, script], capture_output=True, text=True, check=True)
        command = [python, "-m", "clampgrad", "audit", "--json", report, script]
        under = subprocess.run(command, capture_output=True, text=True, check=True)
        assert under.stdout == alone.stdout
        return under.stderr, json.loads(report.read_text())["sites"]

    return run


def named(sites):
    """The function and the file of each, from the package on."""
    return [(s["function"], "/".join(Path(s["file"]).parts[-3:])) for s in sites]


@pytest.mark.slow
def test_gpytorch(audited):
    """The guards of its distances: squares at 0 and above, roots at 1e-30 and above."""
    text, sites = audited("gp_regression.py")
    assert named(sites) == [("clamp_min_", "gpytorch/kernels/kernel.py")] * 2
    bounds = {site["bounds"][0][0]: site for site in sites}
    # The diagonal: 50 of 50 x 50 distances are 0.
    assert bounds["0"]["at_bound"] * 50 == bounds["0"]["elements"]
    assert bounds["1e-30"]["beyond"] * 50 == bounds["1e-30"]["elements"]
    # 1e-30 is its remedy against the root of 0, and works in float32.
    assert all(site["moved"] and not site["warnings"] for site in sites)
    assert "gpytorch/kernels/kernel.py:" in text


@pytest.mark.slow
def test_stable_baselines3(audited):
    """The clipped surrogate of PPO: where ratios are 1 both sides of its minimum tie, harmlessly."""
    text, sites = audited("ppo.py")
    ppo, distributions = "stable_baselines3/ppo/ppo.py", "stable_baselines3/common/distributions.py"
    assert sorted(named(sites)) == [
        *(("clamp", distributions), ("clamp", ppo), ("clamp", ppo), ("min", ppo))
    ]
    minimum = sites[-1]
    assert minimum["function"] == "min" and minimum["at_bound"] == minimum["elements"]
    assert set(minimum["moved"].values()) == {0}
    assert text.strip().startswith("No other exact convention would change the gradient")
