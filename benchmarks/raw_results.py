"""What the raw results say: tables, ratios against the bars, and a plot.

python -m benchmarks.raw_results [RESULTS] [--plot FILE.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

import records

BARS = yaml.safe_load(Path(__file__).with_name("bars.yaml").read_text())


# How the names of CUDA kernels begin (lab.sass), by what they compute.
CUDA_GROUPS = {
    "clamp, `min_norm`, forward": "NumberForwardOp 0 ",
    "clamp, `min_norm`, backward": "NumberBackwardOp 0 ",
    "clamp, `half`, forward": "NumberForwardOp 3 ",
    "clamp, `half`, backward": "NumberBackwardOp 3 ",
    "clamp, `with_grad`, forward": "NumberForwardOp 4 ",
    "clamp, `with_grad`, backward": "NumberBackwardOp 4 0 ",
    "two Tensors, forward": "PairForwardOp ",
    "two Tensors, backward": "PairBackwardOp ",
    "three Tensors, forward": "LookUpTriple ",
    "three Tensors, backward": "TripleBackwardOp ",
}


# What the functions of a block have in common, which are timed in turns: a block is a row of a record.
BLOCK = ("malloc", "group", "n", "size", "dtype", "threads", "direction")


def together(rows):
    """A row a block, of rows of a function each."""
    blocks = {}
    for row in rows:
        block = tuple((key, row[key]) for key in BLOCK if key in row)
        own = {key: v for key, v in row.items() if key not in (*BLOCK, "function")}
        blocks.setdefault(block, {})[row["function"]] = own
    return [{**dict(block), "functions": functions} for block, functions in blocks.items()]


def read(name):
    """A record, with a row for each function of a block."""
    found = records.read(name)
    rows = [
        {**{key: row[key] for key in BLOCK if key in row}, "function": function, **own}
        for row in found["rows"]
        for function, own in row["functions"].items()
    ]
    return {**found, "rows": rows}


def cuda_kernel(results, group, dtype):
    """What the kernel of a group with the most ALU instructions needs."""
    found = [
        k
        for k in results["rows"]
        if k["kernel"].startswith(CUDA_GROUPS[group]) and k["kernel"].endswith(f" {dtype}")
    ]
    return max(found, key=lambda k: k["alu"])


def cuda_misses(results):
    """What of the CUDA kernels' machine code is above its bar."""
    bars = BARS["cuda"]
    for kernel in results["rows"]:
        for what in ("spills", "registers"):
            if kernel[what] > bars[what]:
                yield f"{kernel['kernel']}: {kernel[what]} {what}, at most {bars[what]}"
    for bar in bars["alu"]:
        for dtype in ("float32", "bfloat16"):
            alu = cuda_kernel(results, bar["group"], dtype)["alu"]
            if alu > bar[dtype]:
                yield f"{bar['group']}, {dtype}: {alu} instructions an element, at most {bar[dtype]}"


def of(results, **key):
    """The cases with this key that were timed."""
    rows = (r for r in results["rows"] if all(r[k] == v for k, v in key.items()))
    return [r for r in rows if "median" in r]


def kept(results):
    """The cases of what is kept for backward."""
    return [r for r in results["rows"] if r["direction"] == "kept"]


def seconds(results, **key):
    """{function: its case, with median and quartiles}."""
    return {r["function"]: r for r in of(results, **key)}


def ours(results, group):
    return of(results, group=group)[0]["function"]


# How long it takes at least, by what saves nothing. That is neg; or, per byte, sub, which moves 5 numbers per
# element, forward and backward. maximum moves 6, because it writes two gradients, and 2 bits twice.
LIMITS = {
    "clamp": lambda medians, size: medians["torch.neg"],
    "maximum": lambda medians, size: medians["torch.sub"] * (6 * size + 4 / 8) / (5 * size),
}
SIZES = {"float32": 4, "bfloat16": 2}


def bars(results):
    """(what, dtype, required, measured, the rival over the limit) for every bar."""
    for bar in BARS["ratios"]:
        for dtype in SIZES:
            if dtype in bar:
                direction = bar.get("direction", "both")
                malloc = bar.get("malloc", "fixed")
                key = dict(dtype=dtype, direction=direction, malloc=malloc)
                key["threads"] = threads = bar.get("threads", 1)
                times = seconds(results, group=bar["group"], n=bar["n"], **key)
                if not times:  # the bar is younger than these results
                    continue
                medians = {name: t["median"] for name, t in times.items()}
                if bar["rival"] not in medians:  # or its rival
                    continue
                rival = medians[bar["rival"]]
                measured = rival / medians[ours(results, bar["group"])]
                limit = LIMITS.get(bar["group"], lambda *_: None)(medians, SIZES[dtype])
                what = f"{bar['group']}, N = {size(bar['n'])}: {bar['rival']} / ours"
                what += f", {direction} alone" if direction != "both" else ""
                what += ", malloc's own settings" if malloc == "default" else ""
                what += f", {threads} threads" if threads > 1 else ""
                yield what, dtype, bar[dtype], measured, limit and rival / limit
    times = {n: seconds(results, group="kernel", threads=n) for n in (1, 2)}
    copy, ours_ = "copy", "clamp with its gate"
    if times[2]:
        n = times[1][copy]["n"]
        what = f"{ours_}, kernel alone, N = {size(n)}: 1 thread / 2 threads"
        measured, limit = (times[1][f]["median"] / times[2][f]["median"] for f in (ours_, copy))
        yield what, "float32", BARS["kernels"]["threads_2_over_1"], measured, limit
    for threads, found in times.items():
        if found:
            what = f"its bandwidth over that of a copy, {threads} thread{'s' * (threads != 1)}"
            speed = {f: r["bytes"] / r["median"] for f, r in found.items()}
            measured = speed[ours_] / speed[copy]
            yield what, "float32", BARS["kernels"]["of_copy_bandwidth"], measured, 1.0


def saved(results):
    """[group, function, required bits, measured bits] for every bar, over the dtypes measured."""
    for bar in BARS["saved"]:
        rows = [
            r
            for r in kept(results)
            if r["group"] == bar["group"] and r["function"] == bar["function"]
        ]
        for row in rows:
            yield f"{row['group']}, {row['function']}", row["dtype"], bar["bits"], row["saved_bits"]


def size(n):
    return f"2^{n.bit_length() - 1}" if n > 1 else "1"


def duration(value):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def with_spread(t):
    return f"{duration(t['median'])} ({duration(t['low'])} to {duration(t['high'])})"


# What the picture shows: a group, a dtype, and which of its functions. The first is ours.
CLAMPS = ("clampgrad.clamp", "F.relu", "F.hardtanh", "torch.clamp")
PANELS = (
    ("clamp", "float32", CLAMPS),
    ("clamp", "bfloat16", CLAMPS),
    ("maximum", "float32", ("clampgrad.maximum", "torch.maximum")),
)


def plot(results, path, n=2**20):
    """Bars: microseconds of one call, forward and backward, in a program that sets nothing."""
    from matplotlib.figure import Figure

    from clampgrad._tools.style import GREY, RED, ink

    figure = Figure(figsize=(11, 2.6), layout="constrained")
    for panel, (group, dtype, functions) in zip(figure.subplots(1, len(PANELS)), PANELS):
        key = dict(group=group, n=n, direction="both", malloc="default")
        times = seconds(results, dtype=dtype, threads=1, **key)
        medians = [times[f]["median"] * 1e6 for f in functions]
        spread = [
            [(times[f]["median"] - times[f]["low"]) * 1e6 for f in functions],
            [(times[f]["high"] - times[f]["median"]) * 1e6 for f in functions],
        ]
        colours = [RED] + [GREY] * (len(functions) - 1)
        bars = panel.barh(functions, medians, color=colours, height=0.65, xerr=spread, ecolor=ink())
        panel.bar_label(bars, fmt="{:,.0f}", padding=3)
        panel.set_title(f"{group}, {dtype}")
        panel.set_xlabel("µs, forward and backward")
        panel.margins(x=0.25)
        panel.locator_params(axis="x", nbins=3)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.invert_yaxis()
    m = results["machine"]
    where = f"torch {results['torch']}, {m['cpu']}, {m['instruction_set']}"
    note = f"{n:,} elements, one thread, malloc as it is ({where})"
    figure.supxlabel(note, fontsize=9)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "results", nargs="?", default="cpu-2.13.0-avx512", help="a record, or a file"
    )
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    results = read(args.results)
    print(f"torch {results['torch']}, {results['machine']['cpu']}, commit {results['commit']}")
    for what, dtype, required, measured, limit in bars(results):
        verdict = "" if round(measured, 2) >= required else "  below"
        of = "" if limit is None else f", the limit {limit:.2f}"
        print(f"{what:66} {dtype:9} {measured:6.2f}  (>= {required}{of}){verdict}")
    for what, dtype, required, measured in saved(results):
        verdict = "" if round(measured, 2) <= required else "  above"
        print(f"saved bits: {what:54} {dtype:9} {measured:6.2f}  (<= {required}){verdict}")
    if args.plot:
        from clampgrad._tools.style import on_both

        on_both(lambda path: plot(results, path), args.plot)


if __name__ == "__main__":
    main()
