"""AOTAutograd's cache on disk never serves a gradient of another clampgrad, even without a pin."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

import clampgrad
from testing.processes import script_runner

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch._inductor.config.fallback_by_default = True  # it calls operators, and has no C++ to compile
import clampgrad
def f(x): return clampgrad.clamp(x, 0, 1, gradient="half") * 1
def slope(f):
    x = torch.tensor([0.0, 0.5], requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()
assert slope(torch.compile(f)) == slope(f), (slope(torch.compile(f)), slope(f))
print(slope(f)[0], torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.fixture
def run(tmp_path):
    """Runs the script with the package in a folder: the gradient at a
    bound, and hits in the cache."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}

    def run(folder, portable="1"):
        return script(SCRIPT, folder, CLAMPGRAD_PORTABLE=portable, **cache)[0].split()

    with script_runner(tmp_path, "torch", "torch._dynamo", "torch._inductor.compile_fx") as script:
        yield run


HERE = Path(clampgrad.__file__).parent


def another_version(package):
    build = package / "_implementation/build.py"
    build.write_text(build.read_text() + "VERSION = '99.0'\n")


def a_corrected_gradient(package):
    table = json.loads((package / "_contract/table.json").read_text())
    for row in table["operators"]["clamp"]["rows"]:
        if row["position"] == "x = lo < hi":
            row["numbers"]["half"] = "1/4"
    (package / "_contract/table.json").write_text(json.dumps(table))


def check(one, other, slope):
    """The second time, each finds only what it wrote itself."""
    results = [run() for run in (one, other) * 2]
    assert results == [[s, hits] for hits in "01" for s in ("0.5", slope)]


CHANGES = [(another_version, "0.5"), (a_corrected_gradient, "0.25")]


@pytest.mark.parametrize("change, slope", CHANGES)
def test_another_package(run, tmp_path, change, slope):
    package = tmp_path / "another" / "clampgrad"
    shutil.copytree(HERE, package, ignore=shutil.ignore_patterns("_lib", "__pycache__"))
    change(package)
    check(partial(run, HERE.parent), partial(run, package.parent), slope)


@pytest.mark.compiled("it compares that with the portable one")
def test_the_other_implementation(run):
    check(partial(run, HERE.parent, "0"), partial(run, HERE.parent, "1"), "0.5")
