import sys
from importlib import import_module
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def tool():
    """Imports a module of tools/source_build as its programs do, by a name that other folders may have too."""
    folder = Path(__file__).parents[2] / "tools" / "source_build"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        for path in folder.glob("[a-z]*.py"):
            patch.setitem(sys.modules, path.stem, None)  # what is there comes back
            del sys.modules[path.stem]
        yield import_module
