"""A NaN that signals. Gradients of NaN: test_table.py and test_kernels.py."""

import pytest
import torch

import clampgrad
from oracle import EXTREMA
from testing.comparing import assert_same

# The bits of a signalling NaN for each dtype, in the integer of that width.
SIGNALLING = {
    torch.float32: (torch.int32, 0x7F800001),
    torch.float64: (torch.int64, 0x7FF0000000000001),
    torch.bfloat16: (torch.int16, 0x7F81),
    torch.float16: (torch.int16, 0x7C01),
}


@pytest.mark.parametrize("dtype", SIGNALLING, ids=str)
@pytest.mark.parametrize("name", EXTREMA)
def test_a_nan_that_signals(name, dtype):
    """torch.fmax asks the C library, to which it is more than a missing number."""
    bits, value = SIGNALLING[dtype]
    for length in (1, 70):
        nan = torch.full((length,), value, dtype=bits).view(dtype)
        others = [torch.full_like(nan, other) for other in (-1, 2, torch.inf, torch.nan)]
        for pair in [(nan, other) for other in others] + [(other, nan) for other in others]:
            expected = getattr(torch, name)(*pair)
            recorded = (t.clone().requires_grad_() for t in pair)
            actual = getattr(clampgrad, name)(*recorded).detach()
            assert_same(actual, expected, f"{pair[0][0]} {pair[1][0]}")
            if name.startswith("f"):  # it signals no more
                assert_same(torch.fmax(actual, others[0]), torch.fmax(expected, others[0]))
