"""More than 2^31 elements, forward and backward, of the operators and under a
pin, by one worker at a time."""

from functools import partial
from pathlib import Path

import pytest
import torch
from filelock import FileLock

import clampgrad
from oracle import gradient_of_x
from testing.comparing import random_with_ties

COLUMNS = 41
ROWS = 2**31 // COLUMNS + 2**16
MEMINFO = Path("/proc/meminfo")


def available():
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def enough_memory(tmp_path_factory):
    # 9 bytes per element, and 12 of the portable implementation, which composes
    needs = 20 if clampgrad.implementation == "compiled" else 27
    of_all_workers = tmp_path_factory.getbasetemp().parent
    with FileLock(of_all_workers / "much_memory.lock"):
        if available() < needs:
            pytest.skip(f"fewer than {needs} GB of memory are available")
        yield


EMPTY = partial(torch.empty, dtype=torch.bfloat16)


def transposed(m, n):
    return EMPTY(n, m).t()


# How x lies in memory, and the call.
CASES = {
    "function": (EMPTY, lambda x: clampgrad.clamp(x, 0, 1, gradient="half")),
    "pinned": (transposed, lambda x: torch.clamp(x, 0, 1)),
    "pinned, in place": (lambda m, n: EMPTY(m, n + 1)[:, 1:], lambda x: x.clone().clamp_(0, 1)),
    "pinned, a Tensor": (transposed, lambda x: torch.clamp_min(x, torch.zeros_like(x[0]))),
}


def all_rows_are(x, row):
    return all(((part == row) | (part.isnan() & row.isnan())).all() for part in x.split(2**22))


@pytest.mark.parametrize("case", CASES)
def test_every_element(case):
    torch.set_num_threads(2)
    row, g = (
        random_with_ties(COLUMNS, dtype=torch.bfloat16),
        random_with_ties(COLUMNS, dtype=torch.bfloat16, seed=1),
    )
    laid_out, call = CASES[case]
    x = laid_out(ROWS, COLUMNS).copy_(row).requires_grad_()
    assert x.numel() > 2**31
    with clampgrad.pin("half" if "pinned" in case else None):
        y = call(x)
    high = None if "Tensor" in case else 1
    assert all_rows_are(y.detach(), row.clamp(0, high))
    (gradient,) = torch.autograd.grad(y, x, g.expand_as(y))
    assert all_rows_are(gradient, gradient_of_x("half", row, g, 0, high))
