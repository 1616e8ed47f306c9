"""What can be said of an installed build for CUDA without a GPU: that no operator
lacks a kernel, that no kernel has a stack, into which registers would spill, that none
needs too many registers, and that none issues more instructions than fit into the time
in which memory moves its bytes.

python -m lab.cuda_check     nox -s cuda; needs cuobjdump, which may be Triton's
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
# What an H200 issues for each byte that its memory moves: 132 multiprocessors with 128 lanes, at
# 1.7 GHz, for 4.8 TB/s. For an older GPU it is more.
PER_BYTE = 132 * 128 * 1.7e9 / 4.8e12


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


def whole_tile(code: list[tuple[int, str]]) -> list[str]:
    """The instructions of a lane for a whole tile: on the way with the most stores of 16 bytes,
    and of such ways, on the shortest. `code`: addresses and instructions of a kernel."""
    ways: dict[int, tuple[int, int, list]] = {}  # from an address: stores, length, the way itself
    after = None
    for address, text in reversed(code):
        onward = [] if re.match("EXIT|RET|BRA 0x", text) else [after]
        onward += [int(to, 16) for to in re.findall(r"\bBRA\b.*? (0x[0-9a-f]+)", text)]
        stores, length, way = max(
            (ways[to] for to in onward if to in ways),  # not a loop's
            key=lambda way: (way[0], -way[1]),
            default=(0, 0, None),
        )
        ways[address] = stores + ("STG.E.128" in text), length + 1, [text, way]
        after = address
    texts, rest = [], ways[code[0][0]][2]
    while rest:
        text, rest = rest
        texts.append(text)
    return texts


def instructions_per_byte(sass: str) -> dict[str, float]:
    """Of each kernel. The bytes are those of results, and of inputs that are not broadcast."""
    counts = {}
    for kernel in sass.split("Function : ")[1:]:
        name = kernel.split()[0]
        code = re.findall(r"^\s+/\*(\w{4,})\*/\s+(.*?) ;", kernel, re.MULTILINE)
        texts = whole_tile([(int(address, 16), text) for address, text in code])
        stores, loads = (
            sum(access in text for text in texts) for access in ("STG.E.128", "LDG.E.128")
        )
        # Of three Tensors, x may be the only one that is loaded; a gradient is that of a sum.
        if "StridedInputs" in name:
            loads = 0 if "BackwardOp" in name else stores
        element = {"d": 8, "f": 4, "t": 2}[re.search("op_kernelI(.)", name)[1]]
        bits = sum("SHFL.IDX" in text for text in texts) * 2 / element  # which a backward shuffles
        counts[name] = len(texts) / (16 * (stores + loads) + bits)
    return counts


def main() -> None:
    if not facts()["cuda_kernels"]:
        sys.exit("clampgrad was built without CUDA: build it again, with CLAMPGRAD_CUDA=1")
    library = Path(_implementation.functions.__file__).with_name(LIBRARY)

    def dump(*arguments: str) -> str:
        command = [find_cuobjdump(), *arguments, str(library)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    usage = dump("--dump-resource-usage")
    kernels = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage)
    most = max((int(registers) for _, registers, _ in kernels), default=0)
    counts = instructions_per_byte(dump("-arch", "sm_90", "-sass"))
    print(
        f"{len(kernels)} CUDA kernels, with up to {most} registers;"
        f" of compute capability 9.0, up to {max(counts.values(), default=0):.1f} instructions per byte"
    )
    wrong = [f"no CUDA kernel: {name}" for name in operators_without_a_kernel()]
    wrong += [f"a stack: {name}" for name, _, stack in kernels if int(stack)]
    wrong += [
        f"{count:.1f} instructions per byte: {n}" for n, count in counts.items() if count > PER_BYTE
    ]
    if wrong or not 0 < most <= REGISTERS:
        sys.exit("\n".join(wrong) or f"from 1 to {REGISTERS} registers were expected")


if __name__ == "__main__":
    main()
