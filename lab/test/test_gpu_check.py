"""lab/gpu_check.sh keeps to its time, and says at the end what it knows, whatever went wrong."""

import os
from pathlib import Path

import pytest

from testing.processes import run

ROOT = Path(__file__).parents[2]
# In the place of Python: the tests of kernels never end, those of pins fail, all else is well.
PYTHON = """#!/bin/sh
case "$*" in
  *torch.__path__*) echo 2.13.0 /torch ;;
  *test/kernels*) exec sleep 1000 ;;
  *test/pin*) echo "3 failed, 5 passed"; exit 1 ;;
  *"clampgrad info"*) echo "cuda kernels    yes" ;;
  *) echo "ran: $*" ;;
esac
"""


@pytest.fixture
def check(tmp_path):
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    given = {"PYTHON": python, "OUT": tmp_path / "out", "WHEEL": "a.whl", "DEVICE": "cuda"}

    def check(*steps, seconds):
        """Its exit code, and the lines of the summary by step."""
        env = {**os.environ, **given, "SECONDS_IN_ALL": str(seconds)}
        ended = run(ROOT / "lab/gpu_check.sh", *steps, env=env)
        summary = (tmp_path / "out/summary.txt").read_text()
        assert ended.stdout.endswith(summary), ended.stdout + ended.stderr
        lines = (line.partition(": ") for line in summary.splitlines()[1:])
        return ended.returncode, {step: what for step, _, what in lines}

    return check


def test_a_step_that_does_not_end_is_cut_off(check):
    code, summary = check("kernels", "pins", seconds=9)
    assert code and [*summary] == ["install", "info", "kernels", "pins"]
    assert "passed" in summary["info"] and summary["info"].endswith("cuda kernels    yes")
    assert "cut off" in summary["kernels"] and summary["pins"] == "left out, no time was left"


def test_the_others_run_after_one_that_failed(check):
    code, summary = check("pins", "matrix", "ends", seconds=100)
    assert code and "failed (1)" in summary["pins"]
    assert summary["pins"].endswith("3 failed, 5 passed")
    assert "passed" in summary["matrix"] and "ran: -m pytest" in summary["matrix"]
    assert "passed" in summary["ends"] and "kernels" not in summary
    assert check("models", seconds=100)[0] == 0
