"""Whether the CUDA kernels are built: torch, nvcc and CLAMPGRAD_CUDA=auto|0|1 decide.

With auto, they are built where there is a GPU, for which they are compiled, or where
TORCH_CUDA_ARCH_LIST says for which. Elsewhere they would be built for all GPUs, which takes
minutes, and most who build there have no use for them: with 1 they are built all the same. The
compiler is that of a toolkit, or the one that pip installs beside torch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from buildtools.pip_nvcc import nvcc_beside, requirement
from buildtools.switches import setting
from buildtools.torch_here import torch_of_the_environment

# The compute capability from which on a wheel has code: Turing, the oldest that nvcc 13 knows.
OLDEST = (7, 5)


def cuda_build(pip: bool = True) -> tuple[bool, str]:
    """Whether to build with CUDA, and why; ready for torch.utils.cpp_extension, so call it before
    that is imported. With CLAMPGRAD_CUDA=1 whatever is missing ends the build. `pip`: whether a
    compiler that pip has installed will do."""
    flag = setting("CLAMPGRAD_CUDA", "auto")
    if flag == "0":
        return False, "CLAMPGRAD_CUDA=0"
    if flag == "auto" and torch.version.cuda and not are_named() and not torch.cuda.device_count():
        return False, "there is no GPU here; CLAMPGRAD_CUDA=1 builds them"
    nvcc, missing = find_usable_nvcc(torch.version.cuda, pip)
    if missing and flag == "1":
        raise SystemExit(f"CLAMPGRAD_CUDA=1, but {missing}")
    if missing:
        return False, missing
    os.environ["CUDA_HOME"] = toolkit(nvcc)
    if not are_named():
        os.environ["TORCH_CUDA_ARCH_LIST"] = architectures(nvcc)
    names = os.environ["TORCH_CUDA_ARCH_LIST"]
    return True, f"{nvcc} {version(nvcc)} for torch's CUDA {torch.version.cuda}, {names}"


def are_named() -> bool:
    """Whether the environment names the architectures to compile for."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST") not in (None, "", "native")


def find_usable_nvcc(torch_cuda: str | None, pip: bool) -> tuple[str, None] | tuple[None, str]:
    """The nvcc that builds for this CUDA, as "13.0"; or None, and what is missing."""
    beside = torch_of_the_environment()  # in isolation pip has fetched another build of the release
    if torch_cuda is None or (beside and beside.endswith("+cpu")):
        return None, f"torch {beside or torch.__version__} is a build without CUDA"
    of_pip = nvcc_beside(Path(torch.__file__).parent, torch_cuda) if pip else []
    reasons = []
    for nvcc in compilers(of_pip):
        reason = wrong_version(nvcc, torch_cuda, nvcc in of_pip) or cannot_compile(nvcc)
        if reason is None:
            return nvcc, None
        reasons.append(reason)
    missing = (
        reasons[0] if reasons else "there is no nvcc in CUDA_HOME, on PATH or in /usr/local/cuda"
    )
    # Where pip's is the right one, something else is wrong.
    needed = requirement(torch_cuda) if pip and torch_cuda not in map(version, of_pip) else None
    return None, f'{missing}; pip install "{needed}" brings one' if needed else missing


def compilers(of_pip: list[str]) -> list[str]:
    """Every nvcc that is here, in the order in which they are tried: the one that is asked for,
    those that pip has installed beside torch, and the machine's."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    asked = shutil.which("nvcc", path=f"{home}/bin") if home else None
    machines = shutil.which("nvcc"), shutil.which("nvcc", path="/usr/local/cuda/bin")
    return [*dict.fromkeys(nvcc for nvcc in (asked, *of_pip, *machines) if nvcc)]


def architectures(nvcc: str) -> str:
    """What to compile for, as torch.utils.cpp_extension and CMake take it, of what torch's own
    kernels are compiled for and nvcc knows.

    Code runs on later GPUs with the same first number. So the newest that run on the GPUs of
    this machine will do, and without a GPU the oldest of each number, which together run on all.
    The PTX is for GPUs that come later still. It is no substitute for code: a driver refuses
    PTX of a newer CUDA than its own, and runs such code.
    """
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True).stdout
    known = capabilities("compute", listed)
    known = capabilities("sm", torch._C._cuda_getArchFlags() or "") & known or known
    chosen = set()
    for i in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_capability(i)
        runs = [(major, minor) for major, minor in known if major == gpu[0] and minor <= gpu[1]]
        later = [max(known)] if gpu > max(known) else []
        chosen |= {*sorted(runs or later)[-1:]}  # none for a GPU that torch itself has given up
    if not chosen:
        able = [capability for capability in known if capability >= OLDEST]
        chosen = {min(c for c in able if c[0] == major) for major, _ in able}
    return ";".join(f"{major}.{minor}" for major, minor in sorted(chosen)) + "+PTX"


def capabilities(prefix: str, names: str) -> set[tuple[int, int]]:
    """{(9, 0), (12, 0)} for "sm_90a sm_120"."""
    numbers = re.findall(rf"{prefix}_(\d+)(\d)", names)
    return {(int(major), int(minor)) for major, minor in numbers}


def code() -> str:
    """The code that nvcc makes for them, by its own names, for
    csrc/base/gpu.h: "sm_80+sm_90+compute_90"."""
    from torch.utils.cpp_extension import _get_cuda_arch_flags

    return "+".join(re.findall(r",code=(\w+)", " ".join(_get_cuda_arch_flags())))


def wrong_version(nvcc: str, torch_cuda: str, of_pip: bool) -> str | None:
    """Beside torch there is one folder of headers for both; a toolkit has headers of its own."""
    here = version(nvcc)
    if here == torch_cuda or (here.split(".")[0] == torch_cuda.split(".")[0] and not of_pip):
        return None
    must = "they must be the same" if of_pip else "the first number must be the same"
    return f"{nvcc} is {here} and torch's CUDA is {torch_cuda}: {must}"


def version(nvcc: str) -> str:
    output = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release (\d+\.\d+)", output)
    return release[1] if release else "of an unknown version"


def toolkit(nvcc: str) -> str:
    """The folder of the toolkit. nvcc is asked for it: the one on PATH may be a link, or
    a script that calls another."""
    output = subprocess.run(
        [nvcc, "--dryrun", "-x", "cu", "-c", os.devnull], capture_output=True, text=True
    ).stderr
    top = re.search(r"^#\$ TOP=(.+)$", output, re.MULTILINE)
    return os.path.realpath(top[1]) if top else os.path.dirname(os.path.dirname(nvcc))


def runtime(toolkit: str) -> str | None:
    """The file of the runtime library in a toolkit, or None. What pip brings
    has no name without a version."""
    for folder in ("lib64", "lib"):
        for name in ("libcudart.so", "libcudart.so.*"):
            if libraries := sorted(Path(toolkit, folder).glob(name)):
                return str(libraries[0])
    return None


def cannot_compile(nvcc: str) -> str | None:
    """The error of a trial, if it fails: headers may be missing, or the C++
    compiler may be too new for nvcc."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "trial.cu")
        # As kernels do, for 16 bits.
        source.write_text("#include <cuda_fp16.h>\n__global__ void kernel() {}\n")
        compiler = ["-ccbin", os.environ["CC"]] if "CC" in os.environ else []
        command = [nvcc, *compiler, "-c", "-Xcompiler=-fPIC", str(source)]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    errors = [line for line in run.stderr.splitlines() if "error" in line.lower()]
    if run.returncode:
        return f"{nvcc} cannot compile: {(errors or ['it failed'])[0]}"
    home = toolkit(nvcc)
    return None if runtime(home) else f"there is no libcudart.so in {home}, the toolkit of {nvcc}"
