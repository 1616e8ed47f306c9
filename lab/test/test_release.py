"""The steps of .ci/release are targets of the Makefile."""

import os
import re
import sys
from functools import partial
from pathlib import Path

from common import run
from lab.release import steps

ROOT = Path(__file__).parents[2]


def test_every_step_exists():
    targets = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    of_make = [words[1] for words in steps().values() if words[0] == "make"]
    assert set(of_make) <= set(targets.split()) and len(of_make) > 20
    # A system may have no Python of a usual name.
    release = partial(run, ROOT / ".ci/release", env=os.environ | {"PYTHON": sys.executable})
    assert release("--list").stdout.split() == [*steps()]
    assert "no such step: nothing" in release("nothing").stderr
