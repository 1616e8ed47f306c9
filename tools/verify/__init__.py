"""Verifies patches to PyTorch's gradient formulas in an installed wheel: docs/upstream/verify.md."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

# The reader of the table of conventions, and the series with what applies them. They are taken from the checkout,
# because the torch that is asked need not have clampgrad beside it. The series get a name of their own, because
# folders called `patches` are on the path too.
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "test"))
SERIES = "clampgrad_patches"
if SERIES not in sys.modules:
    spec = spec_from_file_location(SERIES, ROOT / "python/clampgrad/patches/__init__.py")
    assert spec
    sys.modules[SERIES] = module_from_spec(spec)

from clampgrad_patches.apply import files_of  # noqa: E402
from clampgrad_patches.series import Claim, Refusal, all_series, named  # noqa: E402
from clampgrad_patches.tree import SCRIPT  # noqa: E402

__all__ = ["SCRIPT", "Claim", "Refusal", "all_series", "files_of", "named"]
