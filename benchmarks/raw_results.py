"""Reads the raw results: their cases, and the ratios that the bars limit."""

from __future__ import annotations

from pathlib import Path

import yaml

import records

BARS = yaml.safe_load(Path(__file__).with_name("bars.yaml").read_text())
SIZES = {"float32": 4, "bfloat16": 2}

# What the functions of a block share; they are timed in turns, and a block is a row of a record.
BLOCK = ("malloc", "group", "n", "dtype", "threads", "direction")


def write(name, rows, **header):
    """A record with a row for each block, of rows of a function each."""
    blocks = {}
    for row in rows:
        block = tuple((key, row[key]) for key in BLOCK if key in row)
        own = {key: v for key, v in row.items() if key not in (*BLOCK, "function")}
        blocks.setdefault(block, {})[row["function"]] = own
    rows = [{**dict(block), "functions": functions} for block, functions in blocks.items()]
    records.write(name, rows, **header)


def read(name):
    """A record, with a row for each function of a block."""
    found = records.read(name)
    rows = [
        {**{key: row[key] for key in BLOCK if key in row}, "function": function, **own}
        for row in found["rows"]
        for function, own in row["functions"].items()
    ]
    return {**found, "rows": rows}


def of(results, **key):
    """The cases with this key that were timed."""
    rows = (r for r in results["rows"] if all(r[k] == v for k, v in key.items()))
    return [r for r in rows if "median" in r]


def kept(results):
    """The cases of what is kept for backward."""
    return [r for r in results["rows"] if r["direction"] == "kept"]


def seconds(results, **key):
    """{function: its case, with median and quartiles}; the first function is ours."""
    return {r["function"]: r for r in of(results, **key)}


# How long it takes at least, by what saves nothing. That is neg; or, per byte, sub, which moves 5 numbers per
# element, forward and backward. maximum moves 6, because it writes two gradients, and 2 bits twice.
LIMITS = {
    "clamp": lambda medians, size: medians["torch.neg"],
    "maximum": lambda medians, size: medians["torch.sub"] * (6 * size + 4 / 8) / (5 * size),
}


def bars(results, kind="ratios"):
    """(what, dtype, required, measured, the rival over the limit) for every bar that these results can be held to."""
    cases = [
        (bar, n, rival, dtype)
        for bar in BARS[kind]
        for n in bar["n"]
        for rival in bar["rivals"]
        for dtype in SIZES
        if dtype in bar
    ]
    for bar, n, rival, dtype in cases:
        group, malloc = bar["group"], bar.get("malloc", "fixed")
        direction = bar.get("direction", "both")
        key = dict(group=group, n=n, dtype=dtype, direction=direction, malloc=malloc)
        key["threads"] = threads = bar.get("threads", 1)
        medians = {name: t["median"] for name, t in seconds(results, **key).items()}
        if rival in medians:  # a bar may be younger than these results
            limit = LIMITS[group](medians, SIZES[dtype]) if group in LIMITS else None
            what = f"{group}, N = {size(n)}: {rival} / ours"
            what += f", {direction} alone" if direction != "both" else ""
            what += ", malloc's own settings" if malloc == "default" else ""
            what += f", {threads} threads" if threads > 1 else ""
            measured = medians[rival] / next(iter(medians.values()))
            yield what, dtype, bar[dtype], measured, limit and medians[rival] / limit


def cuda_kernel(results, bar, dtype):
    """What the kernel of a group with the most ALU instructions needs."""
    begins, ends = f"{bar['kernel']} ", f" {dtype}"
    found = [r for r in results["rows"] if r["kernel"].startswith(begins)]
    return max((r for r in found if r["kernel"].endswith(ends)), key=lambda r: r["alu"])


def cuda_misses(results):
    """What of the CUDA kernels' machine code is above its bar."""
    bars = BARS["cuda"]
    for kernel in results["rows"]:
        for what in ("spills", "registers"):
            if kernel[what] > bars[what]:
                yield f"{kernel['kernel']}: {kernel[what]} {what}, at most {bars[what]}"
    for bar in bars["alu"]:
        for dtype in SIZES:
            alu = cuda_kernel(results, bar, dtype)["alu"]
            if alu > bar[dtype]:
                yield f"{bar['group']}, {dtype}: {alu} instructions an element, at most {bar[dtype]}"


def size(n):
    return f"2^{n.bit_length() - 1}" if n > 1 else "1"


def duration(value):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def with_spread(t):
    return f"{duration(t['median'])} ({duration(t['low'])} to {duration(t['high'])})"
