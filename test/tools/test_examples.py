"""Every example runs, draws its picture, and measures what docs/examples says; the notebooks print what is
committed, and `make notebooks` runs them anew."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import torch

import clampgrad
from common import leaves

pytestmark = pytest.mark.slow

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
    measured, committed = (leaves(folder / f"{name}.json") for folder in (tmp_path, COMMITTED))
    # Rounding decides about a few pixels and images.
    assert measured == pytest.approx(committed, abs=0.02)


def printed(notebook):
    """What every cell prints; of a picture, that there is one."""
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[output.get("text") or sorted(output["data"]) for output in of] for of in outputs]


@pytest.mark.parametrize("name", ["tutorial", "replication"])
def test_the_outputs_are_those_of_the_installed_torch(name, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat, nbclient and ipykernel")
    from tools import run_notebooks

    (path,) = (path for path in run_notebooks.NOTEBOOKS if path.stem == name)
    committed = nbformat.read(path, as_version=4)
    nbformat.validate(committed)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    fresh, expected = printed(run_notebooks.executed(path)), printed(committed)
    release = f"torch {torch.__version__.split('+')[0]}\n"
    if expected[0] == [release]:
        assert fresh == expected
    else:  # of another release: it runs, and draws the same pictures
        assert fresh[0] == [release]
        found, kinds = ([[*map(type, cell)] for cell in cells] for cells in (fresh, expected))
        assert found == kinds
