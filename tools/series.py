"""The series of patches, and what reads and applies them: the package's own code, in one module for all tools.

It is taken from this checkout, because the torch that is built or asked need not have clampgrad beside it. It has a
name of its own, because folders called `patches` are on the path too.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "clampgrad_patches"
if NAME not in sys.modules:
    file = Path(__file__).resolve().parents[1] / "python/clampgrad/patches/__init__.py"
    spec = spec_from_file_location(NAME, file)
    assert spec
    sys.modules[NAME] = module_from_spec(spec)

# ruff: noqa: E402, F401, I001
from clampgrad_patches.apply import (
    apply,
    attempt,
    committed,
    content,
    files_added,
    files_of,
    state_of,
)
from clampgrad_patches.series import Claim, Refusal, Series, all_series, default, named
from clampgrad_patches.tree import (
    FUNCTIONS,
    NATIVE,
    SCRIPT,
    YAML,
    changed_files,
    git,
    is_repository,
    output_of,
    release_of,
)
