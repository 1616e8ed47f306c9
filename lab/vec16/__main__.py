"""python -m lab.vec16 prove, and time: the top of __init__.py."""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import torch

import records
from lab.vec16 import FLAGS, PROPOSALS, loops

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
INFINITY = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00}  # as bits
BOUNDS = 600  # for clamp, whose triples are too many
FUNCTIONS = ("maximum", "minimum", "clamp_min", "clamp_max", "clamp")
# In an order that has NaNs beside numbers in a vector.
PATTERNS = (torch.arange(2**16) * 40503 % 2**16).to(torch.uint16)


# ---- Every pair ----------------------------------------------------------------------------------


def bounds(dtype, n):
    """Bits of n bounds: what is special, with both signs, and others."""
    infinity = INFINITY[dtype]
    near = [infinity + i for i in (-1, 0, 1, 2)]
    special = [0, 1, 2, 3, 0x7F, 0x80, 0x81, 0x3FF, 0x400, 0x401, *near, 0x7FFF]
    special += torch.tensor([1, 1.5, 2, 6], dtype=dtype).view(torch.int16).tolist()
    unique = dict.fromkeys(s | b for b in special for s in (0, 0x8000))
    spread = (i * 24593 % 2**16 for i in range(2**16))  # odd: each once
    for bits in spread:
        if len(unique) >= n:
            return [*unique]
        unique.setdefault(bits)
    return [*unique]


def compared(before, after, name, dtype, others):
    """How many results of all numbers beside those others differ: numbers, and
    payloads where both are NaN. `others` yields a tuple of bits for each row."""
    x = PATTERNS.view(dtype)
    rows = numbers = payloads = 0
    first = None
    outs = [torch.empty(2**16, dtype=dtype) for _ in range(2)]
    arguments = [x, *(torch.empty_like(x) for _ in range(2 if name == "clamp" else 1))]
    for row in others:
        for argument, bits in zip(arguments[1:], row):
            argument.view(torch.uint16).fill_(bits)
        for side, out in zip((before, after), outs):
            getattr(side, name)(out, arguments, 1)
        rows += 1
        old, new = (out.view(torch.int16) for out in outs)
        if not torch.equal(old, new):
            at = (old != new).nonzero().flatten()
            nan = [out[at] & 0x7FFF > INFINITY[dtype] for out in (old, new)]
            wrong = at[~(nan[0] & nan[1])]
            numbers += len(wrong)
            payloads += len(at) - len(wrong)
            if len(wrong) and not first:
                first = [hex(int(PATTERNS[wrong[0]])), *map(hex, row)]
    return {"compared": rows * 2**16, "numbers": numbers, "payloads": payloads, "first": first}


def proved(sides, others, clamps):
    """A row for each function, dtype and mode of denormals, of each side beside stock's AVX2,
    which eager runs. With all numbers stand the bits `others`; in clamp, all pairs of `clamps`
    bounds. Stock's AVX-512 differs in maximum alone."""
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        for title, dtype in itertools.product(sides, DTYPES):
            some = bounds(DTYPES[dtype], clamps)
            names = {"stock AVX2": (), "stock AVX512": ("maximum",)}.get(title, FUNCTIONS)
            for name in names:
                rows = itertools.product(some, some) if name == "clamp" else ((b,) for b in others)
                counts = compared(sides["stock AVX2"], sides[title], name, DTYPES[dtype], rows)
                yield {"side": title, "dtype": dtype, "function": name, "flush": flush, **counts}
    torch.set_flush_denormal(False)


def prove(folder):
    sides = {f"stock {i}": loops(folder, i) for i in FLAGS}
    sides |= {f"patched {i}": loops(folder, i, *PROPOSALS) for i in FLAGS}
    rows = []
    for row in proved(sides, range(2**16), BOUNDS):
        print(*row.values(), flush=True)
        rows.append(row)
    made = {"torch": torch.__version__, "machine": records.machine()}
    records.write("vec16-proof", rows, digits=None, **made)


# ---- What it costs -------------------------------------------------------------------------------

ROUNDS = 101
SIZES = (2**12, 2**16, 2**20, 2**22)
TIMED = ("relu", "relu6", "maximum", "clamp_tensor", "amax", "neg")


def microseconds(sides, name, n, dtype, rounds):
    """Of a loop on each side, in turn: the median over rounds of some milliseconds."""
    torch.manual_seed(0)
    x, y = (torch.randn(n).mul(2).to(dtype) for _ in range(2))
    inputs = {"maximum": [x, y], "clamp_tensor": [x, torch.full_like(x, -1), torch.ones_like(x)]}
    out = torch.empty(1 if name == "amax" else n, dtype=dtype)
    arguments = out, inputs.get(name, [x]), max(1, 2**18 // n)
    calls = [getattr(side, name) for side in sides]
    times_by_side = [[] for _ in sides]
    for _ in range(rounds):
        for call, times in zip(calls, times_by_side):
            start = time.perf_counter()
            call(*arguments)
            times.append(1e6 * (time.perf_counter() - start) / arguments[-1])
    return [statistics.median(times) for times in times_by_side]


def measure(folder):
    rows = []
    for instructions in FLAGS:
        sides = loops(folder, instructions), loops(folder, instructions, *PROPOSALS)
        for dtype_name, dtype in DTYPES.items():
            for name in TIMED:
                for n in SIZES:
                    before, after = microseconds(sides, name, n, dtype, ROUNDS)
                    row = {"instructions": instructions, "dtype": dtype_name, "loop": name, "n": n}
                    rows.append({**row, "stock": before, "patched": after})
                    print(*rows[-1].values(), flush=True)
    made = {"torch": torch.__version__, "machine": records.machine(), "rounds": ROUNDS}
    records.write("vec16-times", rows, **made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prove", "time"))
    parser.add_argument("--folder", type=Path, help="keeps what is compiled, for another call")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as own:
        {"prove": prove, "time": measure}[given.what](given.folder or Path(own))
