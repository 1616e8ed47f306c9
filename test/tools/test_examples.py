"""Every example runs, draws its picture, and measures what docs/examples says."""

import json
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in ROOT.glob("docs/examples/*.json"))


def test_every_example_is_here():
    """Those that are programs of their own: they end by calling main."""
    programs = [
        p.stem for p in ROOT.glob("examples/*.py") if "\n    main(measure, draw)" in p.read_text()
    ]
    assert sorted(programs) == NAMES and len(NAMES) == 5


COMPILED = {"relu6_memory": "the portable implementation saves a byte where it saves a bit"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.compiled(COMPILED[n])] if n in COMPILED else [])
        for n in NAMES
    ],
)
def test_example(name, tmp_path, monkeypatch, capsys):
    script = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    assert "Caveats." in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    measured = json.loads((tmp_path / f"{name}.json").read_text())
    committed = json.loads((ROOT / f"docs/examples/{name}.json").read_text())
    same(measured, committed)


def same(measured, committed):
    if isinstance(committed, dict):
        assert measured.keys() == committed.keys()
        for key, value in committed.items():
            same(measured[key], value)
    else:
        # Rounding decides about a few pixels and images.
        close = isinstance(committed, float)
        assert measured == (pytest.approx(committed, abs=0.02) if close else committed)
