"""Run the notebooks of docs/ with the installed clampgrad and keep their outputs: `make notebooks`."""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("docs/*.ipynb"))


def executed(path):
    """The notebook with fresh outputs, and without the times at which its cells ran."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    # The notebooks call `python` and `clampgrad`, as in an activated environment.
    path_of_programs = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    env = os.environ | {"PATH": path_of_programs, "COLUMNS": "100"}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute(
        env=env
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs):
    """What a cell prints in one piece: a slow kernel sends it in several."""
    whole = []
    for output in outputs:
        if whole and "text" in output and whole[-1].get("name") == output.get("name"):
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(executed(path), path)
