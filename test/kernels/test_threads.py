"""The threads of torch, of a program, and other processes. Forward and backward in
several threads: the matrix."""

import re
import shutil
import sys

import pytest
import torch

from testing.processes import library, python, run

BUSY = """
import os, pathlib, time, torch, clampgrad

def seconds():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    used = {t.name: (t / "stat").read_text().rsplit(")", 1)[1].split()[11] for t in tasks}
    return {name: int(ticks) / os.sysconf("SC_CLK_TCK") for name, ticks in used.items()}

torch.set_num_threads(2)
x = torch.zeros(2**22)
before = seconds()
end = time.monotonic() + 1
while time.monotonic() < end:
    clampgrad.clamp_(x, 0, 1, gradient="half")
print(sum(s - before.get(name, 0) > 0.05 for name, s in seconds().items()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what each thread did")
@pytest.mark.skipif(
    "backend: OpenMP" not in torch.__config__.parallel_info(),
    reason="this torch says that its threads are not OpenMP's: Note [One OpenMP runtime]",
)
def test_kernels_run_in_the_threads_of_torch():
    assert python("-c", BUSY) == "2\n"


@pytest.mark.skipif(not shutil.which("readelf"), reason="needs readelf")
def test_no_second_openmp_runtime():
    listed = run("readelf", "-d", library()).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", listed)
    assert needed and not [n for n in needed if re.match("lib(gomp|omp|iomp)", n)]


# It starts from a process of its own: what other tests have left in this one does not count.
OTHERS = """
import sys, torch, clampgrad
from functools import partial
from typing import get_args

x = torch.tensor([-torch.inf, -1, 0, 0.5, 1, 2, torch.inf, torch.nan]).repeat(500)
g = torch.rand_like(x)
conventions = get_args(clampgrad.Gradient)
calls = [partial(clampgrad.clamp, min=0, max=1, gradient=convention) for convention in conventions]
vjp = torch.autograd.functional.vjp
here = [vjp(f, x, g) for f in calls]  # first, as in a program that starts processes later
with torch.multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
    there = [pool.apply(vjp, (f, x, g)) for f in calls]
torch.testing.assert_close(there, here, rtol=0, atol=0, equal_nan=True)
"""


@pytest.mark.of_kernels("a mock device cannot share its memory")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process(method):
    if method not in torch.multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork")
    if method == "fork" and torch.cuda.is_available():
        pytest.skip("with a GPU torch refuses backward after a fork: its engine has threads")
    python("-c", OTHERS, method)
