"""The proposals for at::vec, torch's vectors of 16-bit numbers, on the headers of the
installed wheel:

    python -m lab.vec16 prove    every pair of operands; half an hour
    python -m lab.vec16 time     torch's loops, in turn; two minutes

Both compile loops.cpp for AVX2 and for AVX-512, with and without the patches, and write a
record, from which patches/proposals has its tables.
"""

import re
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

from buildtools.torch_here import compiler
from lab.series import PATCHES, git

HERE = Path(__file__).parent
# In their order: the second needs the first, and the third neither.
MAXIMUM, BFLOAT16, HALF = PROPOSALS = ("vec512-maximum", "vec-bfloat16", "vec-half")
FLAGS = {  # those of upstream's build
    "AVX2": ["-mavx2", "-mfma", "-mf16c"],
    "AVX512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"],
}


def patch_of(proposal):
    (path,) = (PATCHES / "proposals" / proposal).glob("*.patch")
    return path


def runs_here(instructions):
    """Whether there is a compiler, and the processor has what it compiles for."""
    needed = {flag.removeprefix("-m") for flag in FLAGS[instructions]}
    information = Path("/proc/cpuinfo")
    has = (
        re.search(r"^flags\s*:(.*)", information.read_text(), re.M)
        if information.exists()
        else None
    )
    return bool(has and needed <= {*has[1].split()} and shutil.which(compiler()[0]))


def headers(folder, *proposals):
    """Makes a folder for -I with the wheel's ATen/cpu/vec, patched."""
    there = Path(torch.__file__).parent / "include/ATen/cpu/vec"
    shutil.copytree(there, folder / "ATen/cpu/vec")
    for proposal in proposals:
        vectors = ["-p3", "--include=ATen/cpu/vec/*"]
        done = git(folder, "apply", *vectors, str(patch_of(proposal)))
        assert not done.returncode, done.stderr
    return folder


def compiled(source, to, instructions, folder, *flags):
    """With the headers of a folder: a program, or with -shared a library."""
    flags = ["-std=c++20", "-w", *FLAGS[instructions], *flags]
    flags += [f"-DCPU_CAPABILITY={instructions}", f"-DCPU_CAPABILITY_{instructions}"]
    paths = [f"-I{path}" for path in (folder, HERE, *include_paths())]
    for path in library_paths():
        paths += [f"-L{path}", f"-Wl,-rpath,{path}"]
    command = [*compiler(), *flags, *paths, source, "-o", to, "-ltorch_cpu", "-lc10"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return to


def loops(folder, instructions, *proposals):
    """The operators of loops.cpp with these patches, or with none."""
    name = f"{'patched' if proposals else 'stock'}_{instructions.lower()}"
    library = folder / f"{name}.so"
    if not library.exists():
        own = headers(folder / name, *proposals)
        flags = ["-O3", f"-DLIBRARY={name}", "-shared", "-fPIC"]
        flags += ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]  # not those of libtorch
        compiled(HERE / "loops.cpp", library, instructions, own, *flags)
    torch.ops.load_library(library)
    return getattr(torch.ops, name)


def upstream_tests(proposal):
    """The tests that a patch adds to upstream's vec_test_all_types.cpp, as a program."""
    name = "aten/src/ATen/test/vec_test_all_types.cpp"
    _, _, changed = patch_of(proposal).read_text().partition(f"diff --git a/{name}")
    added = "\n".join(re.findall(r"^\+(?!\+\+)(.*)", changed.partition("\ndiff ")[0], re.M))
    tests = re.findall(r"^    TYPED_TEST\(\w+, (\w+)\) (\{\n.*?^    \}$)", added, re.M | re.S)
    yield '#include "upstream_test.h"'
    for test, body in tests:
        yield f"template <typename TypeParam>\nvoid {test}() {body}"
    calls = (f"{test}<{v}>();" for test, _ in tests for v in ("vBFloat16", "vHalf"))
    yield "\n  ".join(["int main() {", *calls, "return failed;"]) + "\n}\n"
