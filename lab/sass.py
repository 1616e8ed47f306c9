"""Counts the instructions of the CUDA kernels in their machine code: this needs no GPU, and measures no time.

    python -m lab.sass                        # records/cuda-sass.jsonl
    python -m lab.sass --csrc OTHER/csrc --out FILE.jsonl

It fails where a bar of benchmarks/bars.yaml is missed. Needs nvcc and cuobjdump, which may be Triton's. Per kernel:

alu           instructions of the ALU (comparison, selection, logic, integers) per element, on the longest way
              that a whole tile of a large tensor can take from the block with the most loads of 128 bits.
              On an H100, a multiprocessor issues 64 of these per clock
instructions  all instructions on the longest such way, of which it issues 128
alu_time      the time of the former over that of the kernel's traffic, at the peaks of an H100
registers     per thread
spills        instructions that move a register to or from local memory
"""

from __future__ import annotations

import argparse
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
from benchmarks import raw_results
from buildtools.cuda_build import find_nvcc, version
from lab.check_cuda import compiled

ROOT = Path(__file__).resolve().parent.parent
H100 = {"processors": 132, "alu_per_clock": 64, "hertz": 1.755e9, "bytes_per_second": 3.35e12}
DTYPES = {"f": "float32", "d": "float64", "Half": "float16", "BFloat16": "bfloat16"}
SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
INPUTS = {"PairForwardOp": 2, "LookUpTriple": 3}
OUTPUTS = {"PairBackwardOp": 2, "TripleBackwardOp": 3}
# By how their names begin: memory, what lanes exchange, control flow, what a warp does once, and the other
# units of arithmetic, which work beside the ALU.
NOT_ALU = re.compile(
    r"LD|ST|SHFL|VOTE|BRA|BRX|BSSY|BSYNC|BREAK|CALL|RET|EXIT|NOP|WARPSYNC|S2R|CS2R|S2UR|R2UR|U"
    r"|IMAD|FADD|FMUL|FFMA|HADD|HMUL|HFMA|DADD|DMUL|DFMA|DSETP|MUFU"
)
JUMPS = ("BRA", "EXIT", "RET", "BRX")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@\S+\s+)?([A-Z][\w.]*)([^;]*);")


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
        r"op_kernelI(\w)N\S*?\d((?:Number|Pair|Triple)\w+?Op|LookUpTriple)I(\S*)", mangled
    )
    if not found:
        return None  # unpack_kernel, a byte per element
    lane, operation, rest = found.groups()
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
    def longest(here: int) -> tuple[int, int]:
        """Instructions of the ALU, and all, from a block on."""
        predicate, opcode, rest = blocks[here][-1]
        to = []
        if opcode.startswith("BRA") and opcode != "BRA.DIV":  # for lanes that have parted: none do
            to.append(int(re.search(r"(0x[0-9a-f]+)\s*$", rest)[1], 16))
        conditional = predicate or opcode == "BRA.DIV" or re.match(r"\s*!?U?P\d", rest)
        following = order.index(here) + 1
        if (opcode.split(".")[0] not in JUMPS or conditional) and following < len(order):
            to.append(order[following])
        # Loops are those of other tiles.
        alu, every = max((longest(b) for b in to if b > start), default=(0, 0))
        names = [opcode for _, opcode, _ in blocks[here]]
        return alu + sum(not NOT_ALU.match(n) for n in names), every + len(names)

    alu, every = longest(start)
    operation, *_, dtype = name.split()
    size, reads = SIZES[dtype], INPUTS.get(operation, 1)
    per_lane = sum(map(is_wide_load, blocks[start])) // reads * 16 // size
    traffic = size * (reads + OUTPUTS.get(operation, 1)) + bits_per_element(name) / 8
    clocks = alu / per_lane / (H100["processors"] * H100["alu_per_clock"])
    return {
        "alu": round(alu / per_lane, 2),
        "instructions": round(every / per_lane, 2),
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--csrc", type=Path, default=ROOT / "csrc")
    parser.add_argument("--architecture", default="90")
    parser.add_argument("--out", default="cuda-sass", help="a record, or a file")
    args = parser.parse_args()
    kernels: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((args.csrc / "kernels/cuda").glob("*.cu")):
            cubin = Path(folder, source.stem + ".cubin")
            compiled(source, "cubin", f"sm_{args.architecture}", cubin, args.csrc)
            kernels |= read(cubin)
    header = {
        "commit": subprocess.getoutput(f"git -C {args.csrc} rev-parse --short HEAD"),
        "nvcc": version(find_nvcc()),
        "torch": importlib.metadata.version("torch"),
        "architecture": f"sm_{args.architecture}",
        "h100": H100,
    }
    rows = [{"kernel": name, **counts} for name, counts in sorted(kernels.items())]
    records.write(args.out, rows, **header)
    if missed := list(raw_results.cuda_misses({"rows": rows})):
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
