"""The notebooks of docs/ print what is committed, and `nox -s notebooks` runs them anew."""

import os
import sys

import pytest
import torch

nbformat = pytest.importorskip("nbformat", reason="needs nbformat, nbclient and ipykernel")
pytest.importorskip("nbclient", reason="needs nbformat, nbclient and ipykernel")

from lab import run_notebooks  # noqa: E402

pytestmark = pytest.mark.slow


def printed(notebook):
    """The output of every cell; for a picture, only that there is one."""
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[output.get("text") or sorted(output["data"]) for output in of] for of in outputs]


@pytest.mark.parametrize("name", ["tutorial", "replication"])
def test_the_outputs_are_those_of_the_installed_torch(name, monkeypatch):
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
