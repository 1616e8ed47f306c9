"""The steps of .ci/release are targets of the Makefile."""

import re
from pathlib import Path

from common import run
from lab.release import steps

ROOT = Path(__file__).parents[2]


def test_every_step_exists():
    targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    of_make = [words[1] for words in steps().values() if words[0] == "make"]
    assert set(of_make) <= set(targets.split()) and len(of_make) > 20
    assert run(ROOT / ".ci/release", "--list").stdout.split() == [*steps()]
    assert "no such step: nothing" in run(ROOT / ".ci/release", "nothing").stderr
