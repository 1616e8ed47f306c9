"""docs/support.md says what ran on each release."""

import json
import os
import sys

import pytest

from common import package_path, run
from lab.support import ROOT, cell, of_present_tests


def test_a_cell_of_the_support_page_says_what_ran():
    ran, failed = {"passed": 3, "failed": 0}, {"passed": 3, "failed": 1}
    files = ["test_a", "test_b"]
    assert cell({"test_a": ran, "test_b": ran}, files) == "tested"
    assert cell({"test_a": ran}, files) == "partly"
    assert cell({"test_a": ran, "test_b": {**ran, "cut_off": True}}, files) == "partly"
    assert cell({"test_a": ran, "test_b": failed}, files) == "1 of 7 failed"
    assert cell({"test_a": {"passed": 0, "failed": 0}}, files) == cell(None, files) == "untried"
    assert cell({}, files, "compiled") == "built" and cell(None, files, "compiled") == "untried"


def test_a_run_of_files_that_are_no_more_is_dropped():
    ran = {"passed": 3, "failed": 0}
    runs = {"only built": {}, "gone": {"test_gone": ran}}
    stay = {"test_cli": ran, "test_support": ran}  # those of lab/ are tests, too
    runs["partly"] = {"test_gone": ran, **stay}
    assert of_present_tests(runs) == {"only built": {}, "partly": stay}


@pytest.mark.parametrize("option", [[], ["-x"]])
def test_a_run_that_was_cut_off_says_so(tmp_path, option):
    """Its files count as run in part."""
    record = tmp_path / "support.json"
    (tmp_path / "test_two.py").write_text("def test_one(): assert 0\ndef test_other(): pass\n")
    path = [str(ROOT), str(ROOT / "test"), *package_path()]
    options = ["-p", "conftest", "-c", os.devnull, f"--rootdir={tmp_path}", f"--record={record}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    ended = run(sys.executable, "-m", "pytest", *options, *option, tmp_path, env=env)
    (counts,) = json.loads(record.read_text()).values()
    counts = counts["test_two"]
    assert (counts["passed"], counts["failed"]) == (0 if option else 1, 1), ended.stdout
    assert ("cut_off" in counts) == bool(option)
