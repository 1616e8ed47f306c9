"""Run docs/tutorial.ipynb with the installed clampgrad and keep its outputs: `make tutorial`."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "tutorial.ipynb"


def executed(notebook):
    """The notebook with fresh outputs, and without the times at which its cells ran."""
    notebook = nbformat.from_dict(notebook)
    resources = {"metadata": {"path": NOTEBOOK.parent}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(nbformat.read(NOTEBOOK, as_version=4)), NOTEBOOK)
