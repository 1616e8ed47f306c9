"""The variables that PyTorch is built with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import machine

MINIMAL = Path(__file__).with_name("minimal.cmake")
INCLUDES = "CMAKE_PROJECT_TOP_LEVEL_INCLUDES"  # the variable that names it, of CMake 3.24 and later
# setup.py passes that on; scikit-build-core, which builds 2.15, passes on what the second variable says.
OF_MINIMAL = {INCLUDES: str(MINIMAL), "SKBUILD_CMAKE_DEFINE": f"{INCLUDES}={MINIMAL}"}
# What PyTorch takes from the environment into its configuration.
PASSED_ON = ("BUILD_", "USE_", "CMAKE_")
OTHERS = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "DEBUG", "REL_WITH_DEB_INFO"),
    *("BLAS", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "CUDACXX", "CUDAHOSTCXX"),
    "GLIBCXX_USE_CXX11_ABI",
)
SPEED = ("CMAKE_BUILD_PARALLEL_LEVEL",)  # decides how fast it is built, not what
FEATURES = (
    *("CUDA", "ROCM", "XPU", "NCCL", "DISTRIBUTED", "MKLDNN", "FBGEMM", "XNNPACK", "NNPACK"),
    *("QNNPACK", "PYTORCH_QNNPACK", "KINETO", "ITT", "MIMALLOC"),
)
OFF = ("0", "OFF", "NO", "FALSE", "N")


def environment(minimal: bool) -> dict[str, str]:
    """The environment that PyTorch is built in. A variable that is set already keeps its value."""
    # Parts of third_party are for CMake 3.4 and earlier, which CMake 4 refuses otherwise.
    defaults = {"BUILD_TEST": "0", "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
    if minimal:
        defaults |= {f"USE_{feature}": "0" for feature in FEATURES}
        defaults["USE_PRECOMPILED_HEADERS"] = "1"
        # nvcc takes few versions of Clang.
        if not ({"CC", "CXX"} & os.environ.keys() or nvcc(defaults | os.environ)):
            defaults |= clang()
        defaults |= lld(os.environ.get("CXX") or defaults.get("CXX") or "c++")
    defaults["MAX_JOBS"] = str(jobs(defaults | os.environ))
    own = OF_MINIMAL if minimal else {}
    return defaults | {k: v for k, v in os.environ.items() if v or k not in defaults} | own


def is_minimal(environment: dict[str, str]) -> bool:
    return OF_MINIMAL.items() <= environment.items()


def flags(environment: dict[str, str]) -> dict[str, str]:
    """The variables of an environment that decide what is built."""
    chosen = (k for k in environment if k in OTHERS or k.startswith(PASSED_ON) and k not in SPEED)
    return {k: environment[k].replace(str(MINIMAL), MINIMAL.name) for k in sorted(chosen)}


def jobs(environment: dict[str, str]) -> int:
    """How many files to compile at a time: one per core, as far as memory lasts. A file takes up to 2 GiB, a CUDA
    kernel for attention 6 (github.com/pytorch/pytorch/issues/124018)."""
    each = 6 if nvcc(environment) else 2
    return max(1, min(machine.cores(), (machine.memory() >> 30) // each))


def nvcc(environment: dict[str, str]) -> str | None:
    """The CUDA compiler, if CUDA is not switched off and there is one."""
    if environment.get("USE_CUDA", "").upper() in OFF:
        return None
    home = environment.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which(f"{home}/bin/nvcc") or shutil.which("nvcc")


def clang() -> dict[str, str]:
    """The variables for the newest Clang, if there is one. Without a number, it may be any."""
    found = {}
    for suffix in ("", *(f"-{n}" for n in range(14, 40))):
        names = {"CC": f"clang{suffix}", "CXX": f"clang++{suffix}"}
        if all(map(shutil.which, names.values())):
            command = [names["CXX"], "--version"]
            said = subprocess.run(command, capture_output=True, text=True).stdout
            if version := re.search(r"version (\d+)", said):
                found.setdefault(int(version[1]), names)
    return found[max(found)] if found else {}


def lld(compiler: str) -> dict[str, str]:
    """The variables for lld, if this compiler links with it."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*compiler.split(), "-fuse-ld=lld", "-x", "c++", "-", "-o", f"{scratch}/empty"]
        try:
            subprocess.run(command, input=b"int main() {}", capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return {}
    return {"LDFLAGS": "-fuse-ld=lld"}
