"""What can be said of an installed build for CUDA without a GPU: that no operator
lacks a kernel, that no kernel has a stack, into which registers would spill, and that
none needs too many registers.

python -m lab.cuda_check     make check-cuda; needs cuobjdump, which may be Triton's
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from buildtools.cuda_build import compilers
from buildtools.pip_nvcc import nvcc_beside
from clampgrad import _implementation
from clampgrad._implementation.build import LIBRARY
from clampgrad.cli.info import facts

REGISTERS = 96  # of a thread, at most


def operators_without_a_kernel() -> list[str]:
    """By the dispatcher's own list."""

    def has(name: str, key: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    ours = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("clampgrad::")]
    return [n for n in ours if has(n, "CPU") and not has(n, "CUDA")]


def find_cuobjdump() -> str:
    of_pip = nvcc_beside(Path(torch.__file__).parent, torch.version.cuda)
    folders = [str(Path(nvcc).parent) for nvcc in compilers(of_pip)]
    if spec := find_spec("triton"):
        folders.append(str(Path(spec.origin).parent / "backends/nvidia/bin"))
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(folders))
    return found or sys.exit("there is no cuobjdump on PATH, beside nvcc or in Triton")


def main() -> None:
    if not facts()["cuda_kernels"]:
        sys.exit("clampgrad was built without CUDA: build it again, with CLAMPGRAD_CUDA=1")
    library = Path(_implementation.functions.__file__).with_name(LIBRARY)
    command = [find_cuobjdump(), "--dump-resource-usage", str(library)]
    usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kernels = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage)
    most = max((int(registers) for _, registers, _ in kernels), default=0)
    print(f"{len(kernels)} CUDA kernels, with up to {most} registers")
    wrong = [f"no CUDA kernel: {name}" for name in operators_without_a_kernel()]
    wrong += [f"a stack: {name}" for name, _, stack in kernels if int(stack)]
    if wrong or not 0 < most <= REGISTERS:
        sys.exit("\n".join(wrong) or f"from 1 to {REGISTERS} registers were expected")


if __name__ == "__main__":
    main()
