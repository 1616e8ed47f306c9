"""Verifies patches to PyTorch's gradient formulas in an installed wheel: docs/upstream/verify.md."""

import sys
from pathlib import Path

# The series with what applies them, and the reader of the table of conventions. They are taken from the checkout,
# because the torch that is asked need not have clampgrad beside it.
ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "python" / "clampgrad"), str(ROOT / "test")]

from patches.apply import files_of  # noqa: E402
from patches.series import Claim, Refusal, all_series, named  # noqa: E402
from patches.tree import SCRIPT  # noqa: E402

__all__ = ["SCRIPT", "Claim", "Refusal", "all_series", "files_of", "named"]
