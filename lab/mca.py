"""llvm-mca's figures for the AVX-512 loops of the installed library: cycles per word of 64 elements, and bytes moved
per word.

    python -m lab.mca [FILE...] --out loops

FILE: a library or an object file in its place, also one for arm64, whose NEON loops are read. llvm-mca models
ports and latencies, not memory or a change of clock speed. Needs objdump, c++filt and llvm-mca.
"""

import argparse
import re
import subprocess
from pathlib import Path

import clampgrad
import records
from records import made_on, table

# For each machine of ELF files: the name in binutils, the loops, their vectors, stores of them, and the models.
MACHINES = {
    62: (
        "x86_64",
        "avx512",
        "zmm",
        r"v\w+\s+%zmm\d+,(?!.*%rsp).*\(",
        ("icelake-server", "sapphirerapids", "znver4", "znver5"),
    ),
    183: (
        "aarch64",
        "baseline",
        r"\bq\d|\bv\d+\.",
        r"st(u?r|p)\s+q\d+(?!.*\bsp\b)",
        ("neoverse-v2",),
    ),
}
NOISE = re.compile(
    r"\(clampgrad::Gradient\)|clampgrad::|avx512::|baseline::|\(anonymous namespace\)::|c10::| __vector\(\d+\)"
)
JUMP = re.compile(r"(j\w+|b(\.\w+)?|[ct]bn?z)\s")


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def listed(library, tools, namespace, vectors):
    """(name, instructions) of each: the longest run of vectors that ends in a jump to its beginning."""
    objdump = "objdump" if tools == "x86_64" else f"{tools}-linux-gnu-objdump"
    text = run("c++filt", text=run(objdump, "-d", "--no-show-raw-insn", library))
    for name, body in re.findall(
        r"^[0-9a-f]+ <(.*foreach_whole_word.*)>:\n((?:.+\n)*)", text, re.M
    ):
        lines = re.findall(r"^\s*([0-9a-f]+):\t([^<\n]*)", body, re.M)
        at = {address: i for i, (address, _) in enumerate(lines)}
        code = [re.split(r"//|\s# ", instruction)[0].strip() for _, instruction in lines]
        jumps = [(at.get(c.split()[-1]), i) for i, c in enumerate(code) if JUMP.match(c)]
        found = [code[a:b] for a, b in jumps if a is not None and a < b]
        found = [f for f in found if re.search(vectors, str(f)) and "div" not in str(f)]
        if found and namespace in name:
            operator = re.search(r"foreach_whole_word<(.*?) ?>\(clampgrad::Buffers", name)
            yield NOISE.sub("", operator[1]), max(found, key=len)


def moved(name):
    """The bytes of a word: those of its results, and all with its inputs and its bits."""
    lane = 8 if "double" in name else 4 if "float" in name else 2
    arguments = next(n for n, op in enumerate(("Number", "Pair", "Triple"), 1) if op in name)
    shares = "NumberForwardOp<[34]|NumberBackwardOp<[3-5]"  # half, and the pseudo-gradients
    bits = 2 if re.match(shares, name) else arguments
    results = 64 * lane * (1 if "Forward" in name else arguments)
    return results, 64 * lane * (1 + arguments) + 8 * bits


def cycles(mca, instructions, tools, model):
    code = "\n".join(i for i in instructions if not JUMP.match(i))
    options = (f"-mtriple={tools}", f"-mcpu={model}", "-iterations=200", "-instruction-info=0")
    return int(re.search(r"Total Cycles:\s+(\d+)", run(mca, *options, text=code))[1]) / 200


@table(left=1)
def loops():
    """What a clamp takes by comparisons and by maxima."""
    record = records.read("loops")
    models = ("icelake-server", "sapphirerapids", "znver4", "znver5", "neoverse-v2")
    yield "float32, between two numbers", "bytes", *models, "Zen 4, 2^12", "2^16", "2^20"
    for rule, name in ((0, "min_norm"), (4, "with_grad")):
        for element, form in (("ElementHere", "compared"), ("WithMax", "maxima")):
            loop = f"NumberForwardOp<{rule}, true, true, {element}<float>, float>"
            (r,) = (r for r in record["rows"] if r["loop"] == loop)
            cycles = [f"{r[m]:.0f}" if m in r else "" for m in models]
            took = (f"{ns:.1f}" for ns in r["nanoseconds, by elements"].values())
            yield f"`{name}`, {form}", r["bytes"], *cycles, *took
    yield (
        f"Per word of 64 elements: the bytes that it moves; cycles by llvm-mca {record['llvm']}, of the loops for AVX-512 "
        "and, on neoverse-v2, for NEON, which knows neither memory nor that a processor slows down; and "
        f"nanoseconds of the loop alone, by the number of elements, on {made_on(record)}. "
        "`python -m lab.mca` lists the cycles of all loops."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=[clampgrad.clamp.__self__.__file__])
    parser.add_argument(
        "--out", default="loops", help="a record, or a file; what else it has of a loop stays"
    )
    parser.add_argument("--mca", default="llvm-mca", help="the command")
    given = parser.parse_args()
    rows = {}
    for file in given.files:
        machine = int.from_bytes(Path(file).read_bytes()[18:20], "little")
        tools, namespace, vectors, stores, models = MACHINES[machine]
        for name, code in listed(file, tools, namespace, vectors):
            results, everything = moved(name)
            stored = sum(
                (64 if tools == "x86_64" else 32 if c.startswith("stp") else 16)
                for c in code
                if re.match(stores, c)
            )
            passes = results / stored  # a loop may go over a part of a word
            if passes > 8:  # a loop over vectors in one over words: both would be counted as often
                continue
            row = rows.setdefault(name, {"loop": name, "bytes": everything})
            row.update({m: passes * cycles(given.mca, code, tools, m) for m in models})
    header = {}
    if records.path(given.out).exists():
        header = records.read(given.out)
        for before in header.pop("rows"):
            if before["loop"] in rows:
                rows[before["loop"]] = {**before, **rows[before["loop"]]}
    version = re.search(r"LLVM version (\S+)", run(given.mca, "--version"))[1]
    records.write(given.out, rows.values(), **{**header, **records.here(), "llvm": version})


if __name__ == "__main__":
    main()
