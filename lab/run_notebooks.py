"""Run the notebooks of docs/ with the installed clampgrad and keep
their outputs: `nox -s pictures`."""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("docs/*.ipynb"))


def executed(path):
    """The notebook with fresh outputs, each in one piece, and without the
    times at which its cells ran."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    options = {"timeout": 300, "record_timing": False, "coalesce_streams": True}
    client = NotebookClient(notebook, kernel_name="python3", resources=resources, **options)
    # The notebooks call `python` and `clampgrad`, as in an activated environment.
    path_of_programs = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    client.execute(env=os.environ | {"PATH": path_of_programs, "COLUMNS": "100"})
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(executed(path), path)
