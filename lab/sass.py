"""What can be said of the CUDA side without a GPU: that it is whole, and what its kernels cost in instructions.

    python -m lab.sass          writes records/cuda-sass.jsonl; make check-cuda

It fails where an operator of the installed library has a kernel for the CPU and none for CUDA, where a kernel moves
elements of a whole tile by less than 128 bits at a time, and where a bar of benchmarks/bars.yaml is missed. Needs nvcc
and cuobjdump, which may be Triton's. Per kernel, by its machine code:

alu           instructions of the ALU (comparison, selection, logic, integers) per element, on the longest way
              that a whole tile of a large tensor can take from the block with the most loads of 128 bits.
              On an H100, a multiprocessor issues 64 of these per clock
alu_time      the time of these over that of the kernel's traffic, at the peaks of an H100
registers     per thread
spills        instructions that move a register to or from local memory
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import records
from benchmarks.bars import cuda_misses
from buildtools.cuda_build import find_nvcc, version

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = "sm_90"
H100 = {"processors": 132, "alu_per_clock": 64, "hertz": 1.755e9, "bytes_per_second": 3.35e12}
DTYPES = {"f": "float32", "d": "float64", "Half": "float16", "BFloat16": "bfloat16"}
SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
ROWS = 4 + 1  # of a large and of a small tile (csrc/kernels/cuda/tile.cuh): accesses of a lane
# With numbers joint is the same as min_norm; with_grad and restoring have an instance for maximize too.
EXACT, DIRECTED = 3, 2 * 2
# For each operation: tensors read, tensors written, and instances per dtype.
OPERATIONS = {
    # All pseudo-gradients record the same; there may be a lower bound, an upper bound or both.
    "NumberForwardOp": (1, 1, (EXACT + 1) * 3),
    "NumberBackwardOp": (1, 1, EXACT + DIRECTED + 1),
    "PairForwardOp": (2, 1, 4),  # the larger or the smaller, NaN skipped or not
    "PairBackwardOp": (1, 2, 2 + DIRECTED + 1),  # NaN to both or not; pseudo-gradients
    "LookUpTriple": (3, 1, 1),  # whatever the rule
    "TripleBackwardOp": (1, 3, EXACT + 1 + DIRECTED + 1),  # joint, too, has a rule of its own
}
# By how their names begin: memory, what lanes exchange, control flow, what a warp does once, and the other
# units of arithmetic, which work beside the ALU.
NOT_ALU = re.compile(
    r"LD|ST|SHFL|VOTE|BRA|BRX|BSSY|BSYNC|BREAK|CALL|RET|EXIT|NOP|WARPSYNC|S2R|CS2R|S2UR|R2UR|U"
    r"|IMAD|FADD|FMUL|FFMA|HADD|HMUL|HFMA|DADD|DMUL|DFMA|DSETP|MUFU"
)
JUMPS = ("BRA", "EXIT", "RET", "BRX")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@\S+\s+)?([A-Z][\w.]*)([^;]*);")


def check_operators() -> None:
    """Compares operators by the dispatcher's own list."""
    import torch

    import clampgrad  # noqa: F401

    def has(name: str, key: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("clampgrad::")]
    on_cpu = [n for n in names if has(n, "CPU")]
    without = [n for n in on_cpu if not has(n, "CUDA")]
    if without or not on_cpu:
        raise SystemExit(
            f"no CUDA kernel for {without or 'anything'}: was the installed extension built without "
            "CUDA? `rm .venv/torch-*/installed` and build again, with CLAMPGRAD_CUDA=1"
        )


def compiled(kernel: Path, output: Path) -> None:
    import torch
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS, include_paths

    nvcc = find_nvcc() or sys.exit("there is no nvcc")
    # The kernels are C++17; the headers of 2.13 and later need C++20.
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    command = [nvcc, "-cubin", f"-arch={ARCHITECTURE}", *COMMON_NVCC_FLAGS, "-O2", "-DNDEBUG"]
    command += [f"-std=c++{17 if release < (2, 13) else 20}", f"-I{ROOT / 'csrc'}"]
    command += [f"-I{path}" for path in include_paths()]
    subprocess.run([*command, str(kernel), "-o", str(output)], check=True)


def find_cuobjdump() -> str:
    folders = [str(Path(find_nvcc() or "nvcc").parent)]
    if spec := find_spec("triton"):
        folders.append(str(Path(spec.origin).parent / "backends/nvidia/bin"))
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(folders))
    return found or sys.exit("there is no cuobjdump on PATH, beside nvcc or in Triton")


def read(cubin: Path) -> dict[str, dict]:
    """By kernel, as `NumberForwardOp 0 1 1 bfloat16`: the operation and its template arguments."""
    tool = find_cuobjdump()
    usage, sass = (
        subprocess.run([tool, *flags, cubin], check=True, capture_output=True, text=True).stdout
        for flags in (["--dump-resource-usage"], ["-sass"])
    )
    registers = dict(re.findall(r"Function (\S+):\s+REG:(\d+)", usage))
    kernels = {}
    for part in re.split(r"Function : ", sass)[1:]:
        mangled = part.split(None, 1)[0]
        if name := name_of(mangled):
            kernels[name] = {**count(part, name), "registers": int(registers[mangled])}
    return kernels


def name_of(mangled: str) -> str | None:
    found = re.search(
        r"op_kernelI(\w)N\S*?\d((?:Number|Pair|Back)\w+?Op|LookUpTriple)I(\S*)", mangled
    )
    if not found:
        return None  # unpack_kernel, a byte per element
    lane, operation, rest = found.groups()
    if operation == "BackwardOp":  # of a Rule, whose first argument says of how many
        of = int(re.match(r"N\S*?4RuleILm(\d)E", rest)[1])
        operation = ("Number", "Pair", "Triple")[of - 1] + operation
    short = "Half" if re.search("4Half|ShortILi10E", rest) else "BFloat16"
    arguments = re.findall(r"L(?:NS\w*?_\d+\w+?E|b)(\d+)E", rest.split("EEvT")[0])
    return " ".join([operation, *arguments, DTYPES.get(lane) or DTYPES[short]])


def count(sass: str, name: str) -> dict:
    code = [(int(m[0], 16), *m[1:]) for m in INSTRUCTION.findall(sass)]
    targets = {int(m[1], 16) for *_, rest in code if (m := re.search(r"\b(0x[0-9a-f]+)\s*$", rest))}
    blocks: dict[int, list] = {}
    begins = True
    for address, predicate, opcode, rest in code:
        if begins or address in targets:
            blocks[address] = block = []
        block.append((predicate.strip(), opcode, rest))
        begins = opcode.split(".")[0] in JUMPS
    order = list(blocks)
    start = max(order, key=lambda b: sum(map(is_wide_load, blocks[b])))

    @functools.cache
    def longest(here: int) -> int:
        """Instructions of the ALU from a block on."""
        predicate, opcode, rest = blocks[here][-1]
        to = []
        if opcode.startswith("BRA") and opcode != "BRA.DIV":  # for lanes that have parted: none do
            to.append(int(re.search(r"(0x[0-9a-f]+)\s*$", rest)[1], 16))
        conditional = predicate or opcode == "BRA.DIV" or re.match(r"\s*!?U?P\d", rest)
        following = order.index(here) + 1
        if (opcode.split(".")[0] not in JUMPS or conditional) and following < len(order):
            to.append(order[following])
        # Loops are those of other tiles.
        following_alu = max((longest(b) for b in to if b > start), default=0)
        return following_alu + sum(not NOT_ALU.match(opcode) for _, opcode, _ in blocks[here])

    alu = longest(start)
    operation, *_, dtype = name.split()
    size, (reads, writes, _) = SIZES[dtype], OPERATIONS[operation]
    for what, tensors in (("LDG", reads), ("STG", writes)):
        wide = sum(opcode.startswith(f"{what}.E.128") for _, _, opcode, _ in code)
        if wide < ROWS * tensors:  # the compiler may write a store twice
            raise SystemExit(f"{name}: {wide} {what} of 128 bits, not {ROWS} for each of {tensors}")
    per_lane = sum(map(is_wide_load, blocks[start])) // reads * 16 // size
    traffic = size * (reads + writes) + bits_per_element(name) / 8
    clocks = alu / per_lane / (H100["processors"] * H100["alu_per_clock"])
    return {
        "alu": round(alu / per_lane, 2),
        "alu_time": round(clocks / H100["hertz"] * H100["bytes_per_second"] / traffic, 2),
        "spills": sum(o.startswith(("LDL", "STL")) for _, _, o, _ in code),
    }


def is_wide_load(instruction: tuple[str, str, str]) -> bool:
    return instruction[1].startswith("LDG.E.128")


def bits_per_element(name: str) -> int:
    operation, rule, *_ = name.split()
    if operation.startswith("Number"):
        return 1 if rule in ("0", "1") else 2  # min_norm and inclusive: csrc/clampgrad/gradient.h
    return 2 if operation.startswith("Pair") else 3


def main() -> None:
    check_operators()
    kernels: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(ROOT.glob("csrc/kernels/cuda/*.cu")):
            cubin = Path(folder, source.stem + ".cubin")
            compiled(source, cubin)
            kernels |= read(cubin)
    header = {
        "commit": records.commit(),
        "nvcc": version(find_nvcc()),
        "torch": importlib.metadata.version("torch"),
        "architecture": ARCHITECTURE,
        "h100": H100,
    }
    rows = [{"kernel": name, **counts} for name, counts in sorted(kernels.items())]
    records.write("cuda-sass", rows, **header)
    if missed := list(cuda_misses({"rows": rows})):
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
