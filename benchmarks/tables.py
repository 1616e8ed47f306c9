"""The tables of README.md, docs/ and this folder that show what the commands here measured: records/.

python -m benchmarks.tables [RESULTS...] [--plot FILE.png]   the bars of records of benchmarks.run, a picture of the first
"""

import argparse
from pathlib import Path

import records
from benchmarks import raw_results
from benchmarks.raw_results import seconds, size, with_spread
from records import code, made_on, minutes, table

SPEED = {
    name.removeprefix("cpu-"): raw_results.read(name)
    for name in sorted(path.stem for path in records.FOLDER.glob("cpu-*.jsonl"))
}
USUAL = SPEED["2.13.0"]
SPACE = "\N{NO-BREAK SPACE}"  # between a number and its unit, in cells that are narrow


def machine(results):
    return f"{made_on(results)}; `{results['command']}` at commit {results['commit']}."


# ---- One call ------------------------------------------------------------------------------------

USED = {
    "clamp": ("torch.clamp", "F.hardtanh", "F.relu"),
    "maximum": ("torch.maximum",),
    "clamp(x, lo, hi)": ("torch.clamp",),
}


def used():
    """{(record, dtype, group, rival): {n: the rival's time over ours}} with the default malloc."""
    found = {}
    for name, results in SPEED.items():
        for dtype in raw_results.SIZES:
            for group, rivals in USED.items():
                for n in sorted({r["n"] for r in raw_results.of(results, group=group)}):
                    key = dict(group=group, n=n, dtype=dtype, threads=1, direction="both")
                    times = seconds(results, malloc="default", **key)
                    medians = [t["median"] for t in times.values()]
                    for rival in rivals if times else ():
                        ratios = found.setdefault((name, dtype, group, rival), {})
                        ratios[n] = times[rival]["median"] / medians[0]
    return found


@table()
def speed():
    """What a program gets that sets nothing, the worst beside the best: one sentence."""
    ranges = {}
    for (_, _, group, rival), ratios in used().items():
        if "lo" not in group:
            ranges.setdefault((group, rival), []).extend(ratios.values())
    clamp, hardtanh, relu, maximum = (
        f"{min(found):.2g} to {max(found):.3g} times" for found in ranges.values()
    )
    machines = {}
    for m in (results["machine"] for results in SPEED.values()):
        machines.setdefault(m["cpu"], {})[m["instruction_set"]] = None
    where = " and ".join(f"{cpu} ({' and '.join(sets)})" for cpu, sets in machines.items())
    yield (
        f"Forward and backward together, `clampgrad.clamp` is **{clamp}** as fast as `torch.clamp`, {hardtanh} "
        f"as fast as `F.hardtanh` and {relu} as fast as `F.relu`; `clampgrad.maximum` is {maximum} as fast as "
        f"`torch.maximum`. These are the worst and the best of the sizes from 1 to 2^24 elements, in float32 and "
        f"bfloat16, on one thread of {where} with the default malloc."
    )


@table()
def speed_used():
    """What a program gets that sets nothing: the worst beside the best."""
    found = used()
    rivals = [(group, rival) for group, rivals in USED.items() for rival in rivals]
    names = [r + group.removeprefix("clamp") if "lo" in group else r for group, r in rivals]
    yield "machine", "dtype", *map(code, names)
    for name, results in SPEED.items():
        m, torch = results["machine"], results["torch"].partition("+")[0]
        cpu = m["cpu"].replace("(R)", "").removesuffix(" Processor")
        for dtype in raw_results.SIZES:
            cells = []
            for rival in rivals:
                ratios = found[(name, dtype, *rival)]
                ends = (pick(ratios, key=ratios.get) for pick in (min, max))
                cells.append(" to ".join(f"{ratios[n]:.2g} ({size(n)})" for n in ends))
            yield f"{cpu}, {m['instruction_set']}, torch {torch}", dtype, *cells
    yield f"The number of elements is in brackets. {' '.join(map(machine, SPEED.values()))}"


def bars(named, kind="ratios"):
    """Every ratio that must hold, beside what was measured."""
    measured = [
        {(what, dtype, required): found for what, dtype, required, *found in of}
        for of in (raw_results.bars(results, kind) for results in named.values())
    ]
    yield "the rival's time over ours", "dtype", "target", *named
    for key in {key: None for found in measured for key in found}:
        what, dtype, required = key
        cells = []
        for found in measured:
            value, limit = found.get(key, (None, None))
            if value is None:
                cells.append("")
                continue
            cell = f"{value:.2f}" if round(value, 2) >= required else f"**{value:.2f}**"
            cells.append(cell + ("" if limit is None else f" of {limit:.2f}"))
        yield what, dtype, f"{required:g}", *cells
    yield "Bold: below the target. Of: the limit. Empty: not measured there. " + " ".join(
        map(machine, named.values())
    )


def print_bars(*names, kind="ratios"):
    for row in bars({name: raw_results.read(name) for name in names}, kind):
        print(row if isinstance(row, str) else " | ".join(row))


@table(left=2)
def speed_bars():
    yield from bars(SPEED)


@table(left=1)
def speed_times():
    """Medians and quartiles of the clamps, one thread."""
    key = dict(group="clamp", dtype="float32", threads=1, malloc="fixed")
    sizes = (1, 2**12, 2**16, 2**20, 2**24)
    for direction in ("forward", "backward", "both"):
        columns = [seconds(USUAL, n=n, direction=direction, **key) for n in sizes]
        yield ""
        yield direction, *(f"N = {size(n)}" for n in sizes)
        for function in columns[0]:
            yield code(function), *(with_spread(column[function]) for column in columns)
    yield f"Median (lower to upper quartile), float32, one thread. {machine(USUAL)}"


# ---- What is kept --------------------------------------------------------------------------------


@table()
def memory():
    """What is saved for backward: one sentence."""
    ours, theirs = (
        r["saved_bits"]
        for function in ("clampgrad.clamp", "torch.clamp")
        for r in raw_results.kept(USUAL)
        if (r["group"], r["function"], r["dtype"]) == ("clamp", function, "float32")
    )
    yield (
        f"For backward it keeps **{ours:g} bit per element**; `torch.clamp`, `F.hardtanh` and `F.relu6` "
        f"keep {theirs:g} in float32."
    )


@table(left=2)
def speed_saved():
    """What the graph keeps."""
    yield "", "function", "float32", "bfloat16"
    cases = {}
    for r in raw_results.kept(USUAL):
        cases.setdefault((r["group"], r["function"]), []).append(r)
    for (group, function), (wide, narrow) in cases.items():
        yield group, code(function), f"{wide['saved_bits']:g}", f"{narrow['saved_bits']:g}"
    yield f"Bits per element saved for backward. {machine(USUAL)}"


# ---- Models --------------------------------------------------------------------------------------


@table()
def real_models():
    """The step of real models, and what autograd keeps for it, by setting."""
    found = [records.read(p.stem) for p in sorted(records.FOLDER.glob("real-models-*.jsonl"))]
    first = found[0]
    settings = list(dict.fromkeys(r["setting"] for r in first["rows"]))
    yield "model", "torch", *map(code, settings)
    all_same = True
    for record in found:
        cases = {(r["setting"], r["model"]): r for r in record["rows"]}
        for model in dict.fromkeys(r["model"] for r in record["rows"]):
            cells = []
            for setting in settings:
                here = cases[setting, model]
                time, saved = f"{here['milliseconds']:.0f}", f"{here['saved_bytes'] / 2**20:.1f}"
                same = here["gradients"] == cases["stock", model]["gradients"]
                all_same &= same
                cells.append(f"{time}{SPACE}ms, {saved}{SPACE}MiB{'' if same else ' *'}")
            yield model, record["torch"], *cells
    data = first.get("data", "random data, of the sizes in the script")
    yield (
        f"Forward and backward, one thread of {first['machine']['cpu']}, the default malloc. Each process reports its "
        f"fastest step; shown is the median of {first['rounds']} interleaved processes. Random weights, {data}. "
        f"transformers {first['versions']['transformers']}, timm {first['versions']['timm']}; "
        "[the script](lab/real_models.py). "
        + (
            "All gradients equal stock's to the bit under every pin: in these models no gradient is lost or won at a bound."
            if all_same
            else "*: some gradient differs from stock's in a bit; all others are equal."
        )
    )


@table(left=1)
def compiled_models():
    """What the beginnings of real models keep under torch.compile."""
    record = records.read("compiled-models")
    kept = {}
    for r in record["rows"]:
        kept.setdefault(r["model"], {})[r["setting"]] = f"{r['saved_bytes'] / 2**20:.2f}"
    yield "MiB", *map(code, next(iter(kept.values())))
    for model, by_setting in kept.items():
        yield model, *by_setting.values()
    yield (
        "Kept for backward under `torch.compile`, weights included. `relu` stands in the place of ReLU6, and under the pin a "
        f"call of `torch.clamp`. transformers {record['versions']['transformers']}, timm {record['versions']['timm']}, torch "
        f"{record['torch']}; `python -m lab.real_models --compiled`."
    )


@table(left=0)
def audit_cost():
    found = records.read("audit")
    plain, *audits = found["rows"]
    yield "`every`", "added to a step"
    for r in audits:
        yield r["every"], f"{r['overhead']:.0%}"
    yield (
        f"A stack of MobileNetV2 blocks with {found['call_sites']} call sites of `relu6`, a batch of "
        f"{found['batch']} images of {found['size']} x {found['size']}, one thread, {1000 * plain['seconds']:.0f} ms of "
        f"processor time per step without an audit, on a machine with other load. {made_on(found)}; "
        "`python -m benchmarks.audit_cost`."
    )


# ---- The pin, and processes ----------------------------------------------------------------------


@table(left=1)
def pin():
    """One row a way to pin, one column what is called."""
    found = records.read("pin")
    cases = {r.pop("case"): r for r in found["rows"]}
    yield "ns per call", *cases
    for way in next(iter(cases.values())):
        yield way, *(ways[way] for ways in cases.values())
    yield (
        f"Tensors of one element, float32, one thread, {made_on(found)}; the fastest of many rounds. Entering and "
        f"leaving a block takes {found['a block, microseconds']} µs."
    )


@table(left=1)
def starting():
    """What a program pays for clampgrad and for CLAMPGRAD_GRADIENT."""
    record = records.read("starting")
    found = {r["what"]: r for r in record["rows"]}
    yield "seconds of CPU", "without", "`CLAMPGRAD_GRADIENT=inclusive`"
    for what in ("import torch", "a step"):
        yield what, with_spread(found[what]), with_spread(found[f"{what}, pinned"])
    ms = {name: f"{1000 * r['median']:.2g}" for name, r in found.items()}
    yield (
        f"Median (quartiles) of {record['processes']} processes, one thread, {made_on(record)}. A step is forward, "
        "backward and update of two layers of 64 x 64 with a clamp between them, on 64 samples in float32. Where the "
        f"variable is not set, `import torch` takes {ms['the entry point']} ms more than without clampgrad. "
        f"`import clampgrad` after it takes {ms['import clampgrad, compiled']} ms with the compiled implementation and "
        f"{ms['import clampgrad, portable']} ms with the portable one (`python -m benchmarks.starting`)."
    )


@table()
def from_nothing():
    """How long the commands of README take."""
    r = records.read("from-nothing")
    took = {case["what"]: minutes(case["seconds"]) for case in r["rows"]}
    yield (
        f"In a fresh clone, on {r['machine']['cores']} cores of {r['machine']['cpu']}, it took "
        f"{took['installing torch']} to install torch {r['torch']}, which depends on the network, then "
        f"{took['demo']} for `make demo`, which compiles the extension, and then {took['test']} for `make test`."
    )


# ---- Loops and kernels ---------------------------------------------------------------------------


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


@table(left=1)
def cuda_instructions():
    """The machine code of the CUDA kernels."""
    found = records.read("cuda-sass")
    dtypes, kernels = raw_results.SIZES, found["rows"]
    yield "", *(f"{d}: {what}" for d in dtypes for what in ("ALU", "at most", "of DRAM's time"))
    for bar in raw_results.BARS["cuda"]["alu"]:
        cells = []
        for dtype in dtypes:
            kernel = raw_results.cuda_kernel(found, bar, dtype)
            cells += [f"{kernel['alu']:.1f}", bar[dtype], f"{kernel['alu_time']:.2f}"]
        yield bar["group"], *cells
    yield (
        f"Instructions of the ALU per element, of the kernel of each group that needs most, at commit "
        f"{found['commit']}; and their time over that of the traffic at the peak of DRAM, by the data sheet of an "
        f"H100. {len(kernels)} kernels, of which {sum(k['spills'] > 0 for k in kernels)} spill, with up to "
        f"{max(k['registers'] for k in kernels)} registers. nvcc {found['nvcc']}, {found['architecture']}, torch "
        f"{found['torch']}; `python -m lab.sass`."
    )


# ---- A picture -----------------------------------------------------------------------------------

# A group, a dtype, and which of its functions. The first is ours.
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
        low, median, high = (
            [times[f][k] * 1e6 for f in functions] for k in ("low", "median", "high")
        )
        spread = [[m - v for m, v in zip(median, low)], [v - m for m, v in zip(median, high)]]
        colours = [RED] + [GREY] * (len(functions) - 1)
        drawn = panel.barh(functions, median, color=colours, height=0.65, xerr=spread, ecolor=ink())
        panel.bar_label(drawn, fmt="{:,.0f}", padding=3)
        panel.set_title(f"{group}, {dtype}")
        panel.set_xlabel("µs, forward and backward")
        panel.margins(x=0.25)
        panel.locator_params(axis="x", nbins=3)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.invert_yaxis()
    m = results["machine"]
    where = f"torch {results['torch']}, {m['cpu']}, {m['instruction_set']}"
    figure.supxlabel(f"{n:,} elements, one thread, malloc as it is ({where})", fontsize=9)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    usual = ["cpu-2.13.0-avx512"]
    parser.add_argument("results", nargs="*", default=usual, help="records, or files")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    print_bars(*args.results)
    if args.plot:
        from clampgrad._tools.style import on_both

        results = raw_results.read(args.results[0])
        on_both(lambda path: plot(results, path), args.plot)


if __name__ == "__main__":
    main()
