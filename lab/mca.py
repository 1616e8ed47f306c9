"""What llvm-mca says of the loops for AVX-512 in the installed library: cycles per word of 64 elements.

python -m lab.mca --out loops

It knows ports and latencies, not memory and not that a processor slows down. Needs objdump, c++filt and llvm-mca.
"""

import argparse
import re
import subprocess

import clampgrad
import records

MODELS = ("icelake-server", "sapphirerapids", "znver4", "znver5")
NOISE = re.compile(
    r"\(clampgrad::Gradient\)|clampgrad::|avx512::|\(anonymous namespace\)::|c10::| __vector\(\d+\)"
)


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def loops(library):
    """(name, instructions) of each: the longest run of vectors that ends in a jump to its beginning."""
    text = run("c++filt", text=run("objdump", "-d", "--no-show-raw-insn", library))
    for name, body in re.findall(
        r"^[0-9a-f]+ <(.*foreach_whole_word.*)>:\n((?:.+\n)*)", text, re.M
    ):
        lines = re.findall(r"^\s*([0-9a-f]+):\t([^#<\n]*)", body, re.M)
        at = {address: i for i, (address, _) in enumerate(lines)}
        code = [instruction.strip() for _, instruction in lines]
        jumps = [(at.get(c.split()[-1]), i) for i, c in enumerate(code) if re.match(r"j\w+\s", c)]
        found = [code[a:b] for a, b in jumps if a is not None and a < b]
        found = [f for f in found if "zmm" in str(f) and "div" not in str(f)]
        if found and "avx512" in name:
            operator = re.search(r"foreach_whole_word<(.*?) ?>\(clampgrad::Buffers", name)
            yield NOISE.sub("", operator[1]), max(found, key=len)


def cycles(mca, instructions, model):
    code = "\n".join(i for i in instructions if not i.startswith("j"))
    options = ("-mtriple=x86_64", f"-mcpu={model}", "-iterations=200", "-instruction-info=0")
    return int(re.search(r"Total Cycles:\s+(\d+)", run(mca, *options, text=code))[1]) / 200


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="loops", help="a record, or a file")
    parser.add_argument("--mca", default="llvm-mca", help="the command")
    given = parser.parse_args()
    rows = [
        {"loop": name, **{model: cycles(given.mca, code, model) for model in MODELS}}
        for name, code in loops(clampgrad.clamp.__self__.__file__)
    ]
    version = re.search(r"LLVM version (\S+)", run(given.mca, "--version"))[1]
    records.write(given.out, rows, **records.here(), llvm=version)


if __name__ == "__main__":
    main()
