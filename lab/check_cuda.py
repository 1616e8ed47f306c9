"""Checks of the CUDA kernels that need no GPU, in the environment of the build.

    python -m lab.check_cuda

The installed extension links and imports, every operator with a kernel for the CPU has one for
CUDA, and each kernel moves every element of a whole tile by loads and stores of 128 bits, in the
PTX for each architecture that is built for. Skips, and says why, where the build would leave CUDA out.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from buildtools.cuda_build import cuda_build, find_nvcc

ROOT = Path(__file__).resolve().parent.parent

ROWS = 4 + 1  # of a large and of a small tile (csrc/kernels/cuda/tile.cuh): accesses of a lane
DTYPES = 4
CSRC = ROOT / "csrc"
# With numbers joint is the same as min_norm; with_grad and restoring have an instance for maximize too.
EXACT, DIRECTED = 3, 2 * 2
# For each operation: tensors read, tensors written, and instances per dtype.
OPERATIONS = {
    # All pseudo-gradients record the same; there may be a lower bound, an upper bound or both.
    "NumberForwardOp": (1, 1, (EXACT + 1) * 3),
    "NumberBackwardOp": (1, 1, EXACT + DIRECTED),
    "PairForwardOp": (2, 1, 4),  # the larger or the smaller, NaN skipped or not
    "PairBackwardOp": (1, 2, 2 + DIRECTED + 1),  # NaN to both or not; pseudo-gradients
    "LookUpTriple": (3, 1, 1),  # whatever the rule
    "TripleBackwardOp": (1, 3, EXACT + DIRECTED + 1),
}
WIDE = r"global(?:\.\w+)*\.v(?:4\.[busf]32|2\.[busf]64)\b"


def main() -> None:
    cuda, why = cuda_build()
    if not cuda:
        print(f"skipped, the build leaves CUDA out: {why}")
        return
    print(f"the build has CUDA: {why}")
    check_operators()
    kernels = sorted((CSRC / "kernels/cuda").glob("*.cu"))
    # As cuda_build() found or set it: "8.0;9.0+PTX".
    named = os.environ["TORCH_CUDA_ARCH_LIST"]
    architectures = ["".join(digits) for digits in re.findall(r"(\d+)\.(\d\w?)", named)]
    if not architectures:
        raise SystemExit(f"TORCH_CUDA_ARCH_LIST={named} has no number of an architecture, as 8.0")
    jobs = [(kernel, architecture) for architecture in architectures for kernel in kernels]
    start = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda job: ptx(*job), jobs))
    print(f"PTX of {len(jobs)} compilations in {time.monotonic() - start:.0f} s")
    for architecture in architectures:
        check_ptx(architecture, "".join(t for (_, a), t in zip(jobs, texts) if a == architecture))


def check_operators() -> None:
    """Compares operators by the dispatcher's own list."""
    import torch

    import clampgrad  # noqa: F401

    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("clampgrad::")]
    on_cpu = [n for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, "CPU")]
    without = [n for n in on_cpu if not torch._C._dispatch_has_kernel_for_dispatch_key(n, "CUDA")]
    if not on_cpu:
        raise SystemExit("no operator has a kernel for the CPU: is this the extension?")
    if without:
        raise SystemExit(
            f"no CUDA kernel for {', '.join(without)}: was the installed extension built without "
            "CUDA? `rm .venv/torch-*/installed` and build again, with CLAMPGRAD_CUDA=1"
        )
    print(f"{len(on_cpu)} operators have kernels for the CPU, and all of them for CUDA")


def compiled(kernel: Path, form: str, architecture: str, output: Path, csrc: Path = CSRC) -> None:
    """`form` is ptx or cubin, `architecture` one that nvcc has this for."""
    import torch
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS, include_paths

    command = [find_nvcc(), f"-{form}", f"-arch={architecture}", *COMMON_NVCC_FLAGS]
    # The kernels are C++17; the headers of 2.13 and later need C++20.
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    standard = "17" if release < (2, 13) else "20"
    command += [f"-std=c++{standard}", "-O2", "-DNDEBUG", f"-I{csrc}"]
    command += [f"-I{path}" for path in include_paths()]
    subprocess.run([*command, str(kernel), "-o", str(output)], check=True)


def ptx(kernel: Path, architecture: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.ptx")
        compiled(kernel, "ptx", f"compute_{architecture}", output)
        return output.read_text()


def check_ptx(architecture: str, text: str) -> None:
    instances = dict.fromkeys(OPERATIONS, 0)
    for entry in re.split(r"\.entry\s+", text)[1:]:
        name = entry.split("(", 1)[0]
        operation = next(o for o in OPERATIONS if re.search(rf"\d{o}I", name))
        instances[operation] += 1
        reads, writes, _ = OPERATIONS[operation]
        for what, tensors in (("ld", reads), ("st", writes)):
            found = len(re.findall(rf"\b{what}\.{WIDE}", entry))
            if found != ROWS * tensors:
                raise SystemExit(
                    f"sm_{architecture}, {name}: {found} {what}.global of 128 bits, "
                    f"not {ROWS} for each of {tensors} tensors"
                )
    expected = {o: count * DTYPES for o, (_, _, count) in OPERATIONS.items()}
    if instances != expected:
        raise SystemExit(f"sm_{architecture}: kernels {instances}, expected {expected}")
    print(
        f"sm_{architecture}: {sum(instances.values())} kernels, every access to a whole tile of 128 bits"
    )


if __name__ == "__main__":
    main()
