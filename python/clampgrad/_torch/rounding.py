"""Numbers, rounded to a dtype as torch rounds a number beside a Tensor."""

from numbers import Integral

import torch
from torch import Tensor


def cast_number(number: float, dtype: torch.dtype) -> Tensor:
    """Returns a number of Python or NumPy as a Tensor of a dtype, rounded once. torch.tensor has
    the default dtype: by way of that, 0.1 would not be the 0.1 of float64."""
    exact = torch.float64
    if isinstance(number, Integral) and -(2**63) <= number < 2**64:
        number, exact = int(number), torch.int64 if number < 2**63 else torch.uint64
    return torch.tensor(number, dtype=exact, device="cpu").to(dtype)
