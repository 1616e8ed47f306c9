"""Every example runs, draws its picture, and measures what docs/examples says."""

import json
import runpy
import sys
from pathlib import Path

import pytest

import clampgrad

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs/examples"
NAMES = sorted(path.stem for path in COMMITTED.glob("*.json"))


def test_every_example_is_here():
    """Those that are programs of their own: they end by calling main."""
    files = ROOT.glob("examples/*.py")
    programs = sorted(p.stem for p in files if "\n    main(measure, draw)" in p.read_text())
    assert programs == NAMES and len(NAMES) == 5


@pytest.mark.parametrize("name", NAMES)
def test_example(name, tmp_path, monkeypatch, capsys):
    if name == "relu6_memory" and clampgrad.implementation != "compiled":
        pytest.skip("the portable implementation saves a byte where the compiled one saves a bit")
    script = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    assert "Caveats." in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    same(*(json.loads((f / f"{name}.json").read_text()) for f in (tmp_path, COMMITTED)))


def same(measured, committed):
    """Rounding decides about a few pixels and images."""
    if isinstance(committed, dict):
        assert measured.keys() == committed.keys()
        for key, value in committed.items():
            same(measured[key], value)
    elif isinstance(committed, float):
        assert measured == pytest.approx(committed, abs=0.02)
    else:
        assert measured == committed
