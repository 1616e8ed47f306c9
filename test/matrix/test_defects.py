"""What is known to be wrong still is: else it leaves matrix/defects.py, and its cells run."""

import pytest

from matrix.defects import DEFECTS


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(d, marks=pytest.mark.xfail(strict=True, reason=d.name), id=d.name)
        for d in DEFECTS
    ],
)
def test_is_not_mended_yet(defect):
    defect.reproduce()
