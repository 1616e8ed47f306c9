"""The variables of a build are 0 or 1, as at import (test_cli.py), and
nothing else is taken for either."""

import os
import sys
from pathlib import Path

import pytest

from buildtools import switches
from clampgrad._implementation import environment
from testing.processes import run

ROOT = Path(__file__).resolve().parents[2]

NAMES = ("CLAMPGRAD_PORTABLE", "CLAMPGRAD_REQUIRE_COMPILED")


@pytest.mark.parametrize("value, on", [(None, False), ("", False), ("0", False), ("1", True)])
def test_one_rule_at_import_and_at_build(monkeypatch, value, on):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
        assert environment.is_set(name) is switches.is_set(name) is on


@pytest.mark.parametrize("value", ["true", "yes", "2", "01", " 1", "auto"])
def test_what_is_neither(monkeypatch, value):
    for name in NAMES:
        monkeypatch.setenv(name, value)
        for module, error in ((environment, ImportError), (switches, SystemExit)):
            with pytest.raises(error, match=f"{name}={value!r}"):
                module.is_set(name)


WRONG = {
    "neither": {"CLAMPGRAD_PORTABLE": "true"},
    "both": dict.fromkeys(NAMES, "1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_build_ends_with_one_sentence(name):
    """Even where it would not read the variable: there is a compiler, and no library is missing."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD_")}
    ended = run(sys.executable, "setup.py", "--version", cwd=ROOT, env=rest | WRONG[name])
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended.stderr
    assert all(variable in ended.stderr for variable in WRONG[name])
