"""Every example runs, draws its picture, and measures what records/examples says."""

import runpy
import sys
from pathlib import Path

import pytest

import clampgrad
from common import leaves

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "records/examples"
NAMES = sorted(path.stem for path in COMMITTED.glob("*.json") if path.stem != "demo")


def test_every_example_is_here():
    """Every example that is a program of its own, and so ends by calling main."""
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
    measured, committed = (leaves(folder / f"{name}.json") for folder in (tmp_path, COMMITTED))
    # Rounding decides about a few pixels and images.
    assert measured == pytest.approx(committed, abs=0.02)
