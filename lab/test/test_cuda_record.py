"""The record of the CUDA kernels' machine code is of all that there are."""

from collections import Counter

import records
from lab import sass


def test_every_cuda_kernel_was_read():
    counts = Counter(row["kernel"].split()[0] for row in records.read("cuda-sass")["rows"])
    expected = sass.OPERATIONS.items()
    assert counts == {o: n * len(sass.DTYPES) for o, (_, _, n) in expected}
