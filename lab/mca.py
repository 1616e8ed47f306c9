"""llvm-mca's figures for the AVX-512 loops of the installed library:
cycles per word of 64 elements.

    python -m lab.mca [LIBRARY] [--out loops]

--out, a record or a file, gets the loops that the table shows, beside the nanoseconds, which were
taken by hand. llvm-mca models ports and latencies, not memory or a change of clock speed. Needs
objdump, c++filt and llvm-mca.
"""

import argparse
import re
import subprocess
from pathlib import Path

import clampgrad
import records
from clampgrad._implementation.build import LIBRARY
from records import made_on, table

MODELS = ("icelake-server", "sapphirerapids", "znver4", "znver5")
NOISE = re.compile(
    r"\(clampgrad::Gradient\)|clampgrad::|avx512::|\(anonymous namespace\)::|c10::| __vector\(\d+\)"
)


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def listed(library):
    """(name, instructions) of each: the longest run of vectors that ends
    in a jump to its beginning."""
    text = run("c++filt", text=run("objdump", "-d", "--no-show-raw-insn", library))
    for name, body in re.findall(
        r"^[0-9a-f]+ <(.*avx512.*foreach_whole_word.*)>:\n((?:.+\n)*)", text, re.M
    ):
        lines = re.findall(r"^\s*([0-9a-f]+):\t([^<\n]*)", body, re.M)
        at = {address: i for i, (address, _) in enumerate(lines)}
        code = [instruction.partition(" # ")[0].strip() for _, instruction in lines]
        jumps = [(at.get(c.split()[-1]), i) for i, c in enumerate(code) if c.startswith("j")]
        loops = [code[a:b] for a, b in jumps if a is not None and a < b]
        loops = [f for f in loops if "zmm" in str(f) and "div" not in str(f)]
        if loops:
            operator = re.search(r"foreach_whole_word<(.*?) ?>\(clampgrad::Buffers", name)
            yield NOISE.sub("", operator[1]), max(loops, key=len)


def passes(name, code):
    """How often a loop runs for a word: by the bytes of the results, and those that it stores."""
    lane = 8 if "double" in name else 4 if "float" in name else 2
    kinds = ("Number|Rule<1", "Pair|Rule<2", "Triple|Rule<3")
    arguments = next(n for n, kind in enumerate(kinds, 1) if re.search(kind, name))
    stores = sum(bool(re.match(r"v\w+\s+%zmm\d+,(?!.*%rsp).*\(", c)) for c in code)
    return lane * (1 if "Forward" in name else arguments) / stores


def cycles(code, model):
    text = "\n".join(c for c in code if not c.startswith("j"))
    options = ("-mtriple=x86_64", f"-mcpu={model}", "-iterations=200", "-instruction-info=0")
    match = re.search(r"Total Cycles:\s+(\d+)", run("llvm-mca", *options, text=text))
    return int(match[1]) / 200


@table(left=1)
def loops():
    """What a clamp takes by comparisons and by maxima."""
    record = records.read("loops")
    yield "float32, between two numbers", *MODELS, "Zen 4, 2^12", "2^16", "2^20"
    for rule, name in ((0, "min_norm"), (4, "with_grad")):
        for element, form in (("CpuElement", "compared"), ("MaxInstructionElement", "maxima")):
            loop = f"NumberForwardOp<{rule}, true, true, {element}<float>, float>"
            (r,) = (r for r in record["rows"] if r["loop"] == loop)
            took = (f"{ns:.1f}" for ns in r["nanoseconds, by elements"].values())
            yield f"`{name}`, {form}", *(f"{r[m]:.0f}" for m in MODELS), *took
    yield (
        f"Per word of 64 elements: cycles by llvm-mca {record['llvm']}, which knows neither memory "
        "nor that a processor slows down; and nanoseconds of the loop alone, by the number of "
        f"elements, on {made_on(record)}. `python -m lab.mca` lists the cycles of all loops."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "library", nargs="?", default=Path(clampgrad.clamp.__self__.__file__).with_name(LIBRARY)
    )
    parser.add_argument("--out", help="without it, the cycles are printed")
    given, rows = parser.parse_args(), {}
    for name, code in listed(given.library):
        times = passes(name, code)  # a loop may go over a part of a word
        if times <= 8:  # else a loop over vectors in one over words: both would be counted as often
            rows[name] = {m: times * cycles(code, m) for m in MODELS}
            print(name, *(f"{m} {n:.2f}" for m, n in rows[name].items()), sep="  ", flush=True)
    assert rows, f"no loops for AVX-512 in {given.library}"
    if given.out:
        header = records.read("loops")  # of the machine of the nanoseconds
        header["commit"] = records.commit()
        header["llvm"] = re.search(r"LLVM version (\S+)", run("llvm-mca", "--version"))[1]
        new_rows = [{**row, **rows[row["loop"]]} for row in header.pop("rows")]
        records.write(given.out, new_rows, **header)


if __name__ == "__main__":
    main()
