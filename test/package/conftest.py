import os
from pathlib import Path

import pytest

from testing.processes import script_runner
from testing.quick_build import copy_to


@pytest.fixture
def tree(tmp_path):
    """A copy of the sources."""
    if not (Path(__file__).parents[2] / ".git").exists():
        pytest.skip("it copies what git knows")
    copy_to(tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Runs a text where torch is imported already, and no variable of ours is set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("CLAMPGRAD_")]:
            patch.delenv(name)
        with script_runner(tmp_path_factory.mktemp("script"), "torch") as run:
            yield run
