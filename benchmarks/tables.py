"""The tables of README.md, docs/ and this folder that show what the commands here measured: records/."""

import records
from benchmarks import raw_results
from records import code, made_on, markdown

SPEED = {
    name: raw_results.read(f"cpu-{name}")
    for name in sorted(p.stem.removeprefix("cpu-") for p in records.FOLDER.glob("cpu-*.jsonl"))
}
USUAL = SPEED["2.13.0"]
SPACE = "\N{NO-BREAK SPACE}"  # between a number and its unit, in cells that are narrow
USED = {
    "clamp": ("torch.clamp", "F.hardtanh", "F.relu"),
    "maximum": ("torch.maximum",),
    "clamp(x, lo, hi)": ("torch.clamp",),
}


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
    for name in sorted({key[0] for key in used()}):
        m = SPEED[name]["machine"]
        machines.setdefault(m["cpu"], {})[m["instruction_set"]] = None
    where = " and ".join(f"{cpu} ({' and '.join(sets)})" for cpu, sets in machines.items())
    return (
        f"Forward and backward together, `clampgrad.clamp` is **{clamp}** as fast as `torch.clamp`, {hardtanh} "
        f"as fast as `F.hardtanh` and {relu} as fast as `F.relu`; `clampgrad.maximum` is {maximum} as fast as "
        f"`torch.maximum`. These are the worst and the best of the sizes from 1 to 2^24 elements, in float32 and "
        f"bfloat16, on one thread of {where} with the default malloc."
    )


def memory():
    """What is saved for backward: one sentence."""
    kept = {
        (r["group"], r["function"]): r for r in raw_results.kept(USUAL) if r["dtype"] == "float32"
    }
    ours, theirs = (kept["clamp", f]["saved_bits"] for f in ("clampgrad.clamp", "torch.clamp"))
    return (
        f"For backward it keeps **{ours:g} bit per element**; `torch.clamp`, `F.hardtanh` and `F.relu6` "
        f"keep {theirs:g} in float32."
    )


def used():
    """{(record, dtype, group, rival): {n: the rival's time over ours}} with the default malloc."""
    found = {}
    for release, results in SPEED.items():
        if not raw_results.seconds(results, group="maximum", malloc="default"):
            continue  # a run from before all of these were timed so
        for dtype in ("float32", "bfloat16"):
            for group, rivals in USED.items():
                for n in sorted({r["n"] for r in raw_results.of(results, group=group)}):
                    key = dict(group=group, n=n, dtype=dtype, threads=1)
                    times = raw_results.seconds(results, direction="both", malloc="default", **key)
                    for rival in rivals if times else ():
                        ratio = (
                            times[rival]["median"]
                            / times[raw_results.ours(results, group)]["median"]
                        )
                        found.setdefault((release, dtype, group, rival), {})[n] = ratio
    return found


def speed_used():
    """What a program gets that sets nothing: the worst beside the best."""
    found = used()
    rivals = [(group, rival) for group, rivals in USED.items() for rival in rivals]
    names = [r + group.removeprefix("clamp") if "lo" in group else r for group, r in rivals]
    rows = [["machine", "dtype", *map(code, names)]]
    for release, dtype in dict.fromkeys(key[:2] for key in found):
        cells = []
        for rival in rivals:
            ratios = found[(release, dtype, *rival)]
            worst, best = (pick(ratios, key=ratios.get) for pick in (min, max))
            ends = (f"{ratios[n]:.2g} ({raw_results.size(n)})" for n in (worst, best))
            cells.append(" to ".join(ends))
        rows.append([short_machine(release), dtype, *cells])
    shown = dict.fromkeys(release for release, *_ in found)
    note = " ".join(machine(SPEED[release]) for release in shown)
    return markdown(*rows) + "\n\nThe number of elements is in brackets. " + note


def short_machine(release):
    m, torch = SPEED[release]["machine"], SPEED[release]["torch"].partition("+")[0]
    cpu = m["cpu"].replace("(R)", "").removesuffix(" Processor")
    return f"{cpu}, {m['instruction_set']}, torch {torch}"


def machine(results):
    return f"{made_on(results)}; `{results['command']}` at commit {results['commit']}."


def speed_bars():
    """Every ratio that must hold, beside what was measured."""
    measured = []
    for results in SPEED.values():
        found = {}
        for what, *rest in raw_results.bars(results):
            operator, comma, case = what.partition(", ")
            if "_mingrad" in operator:  # of all these, the one that does worst
                what = f"the `_mingrad` operators{comma}{case}, the least of them"
            key = (what, *rest[:2])
            found[key] = min(found.get(key, rest[2:]), rest[2:])
        measured.append(found)
    rows = [["the rival's time over ours", "dtype", "target", *SPEED]]
    for key in {key: None for found in measured for key in found}:
        what, dtype, required = key
        cells = []
        for found in measured:  # the run may be older than the bar
            value, limit = found.get(key, (None, None))
            if value is None:
                cells.append("")
                continue
            cell = f"{value:.2f}" if round(value, 2) >= required else f"**{value:.2f}**"
            cells.append(cell + ("" if limit is None else f" of {limit:.2f}"))
        rows.append([what, dtype, f"{required:g}", *cells])
    note = " ".join(machine(results) for results in SPEED.values())
    return (
        markdown(*rows, right=range(2, 3 + len(SPEED)))
        + "\n\nBold: below the target. Of: the limit. Empty: not measured there. "
        + note
    )


def speed_times():
    """Medians and quartiles of the clamps, one thread."""
    results = USUAL
    key = dict(group="clamp", dtype="float32", threads=1, malloc="fixed")
    sizes = (1, 2**12, 2**16, 2**20, 2**24)
    parts = []
    for direction in ("forward", "backward", "both"):
        columns = [raw_results.seconds(results, n=n, direction=direction, **key) for n in sizes]
        rows = [[direction, *(f"N = {raw_results.size(n)}" for n in sizes)]]
        for function in columns[0]:
            times = (column[function] for column in columns)
            rows.append([code(function), *map(raw_results.with_spread, times)])
        parts.append(markdown(*rows, right=range(1, 1 + len(sizes))))
    note = "Median (lower to upper quartile), float32, one thread. " + machine(results)
    return "\n\n".join([*parts, note])


def speed_saved():
    """What the graph keeps, and what a step has resident."""
    results = USUAL
    rows = [["", "function", "float32, bits", "bfloat16, bits", "float32, peak MiB"]]
    kept = {
        (r["group"], r["function"], r["dtype"]): r
        for r in raw_results.kept(results)
        if "_mingrad" not in r["group"]  # which are like the front doors
    }
    for group, function, dtype in kept:
        if dtype == "float32":
            wide, narrow = kept[group, function, dtype], kept[group, function, "bfloat16"]
            peak = "" if wide["peak_bytes"] is None else f"{wide['peak_bytes'] / 2**20:.1f}"
            bits = (f"{r['saved_bits']:g}" for r in (wide, narrow))
            rows.append([group, code(function), *bits, peak])
    n = raw_results.size(raw_results.kept(results)[0]["n"])
    note = (
        "Bits per element saved for backward, and how far a step with N elements raises resident memory: "
        f"N = {n}, the default malloc."
    )
    return markdown(*rows, right=(2, 3, 4)) + "\n\n" + note


def speed_model():
    results = USUAL
    rows = [["activation", "step", "saved for backward"]]
    found = raw_results.of(results, group="model")
    for r in found:
        rows.append(
            [code(r["function"]), raw_results.with_spread(r), f"{r['saved_bytes'] / 2**20:.1f} MiB"]
        )
    size = found[0]["size"]
    note = (
        f"A batch of {found[0]['n']} images of {size} x {size}, float32, one thread, malloc set to recycle "
        f"memory ([why](../benchmarks/README.md#how-it-is-measured)). {machine(results)}"
    )
    return markdown(*rows, right=(1, 2)) + "\n\n" + note


def cuda_instructions():
    """The machine code of the CUDA kernels."""
    found = records.read("cuda-sass")
    bars = {bar["group"]: bar for bar in raw_results.BARS["cuda"]["alu"]}
    dtypes = ("float32", "bfloat16")
    rows = [
        ["", *(f"{d}: {what}" for d in dtypes for what in ("ALU", "at most", "of DRAM's time"))]
    ]
    for group in raw_results.CUDA_GROUPS:
        cells = []
        for dtype in dtypes:
            kernel = raw_results.cuda_kernel(found, group, dtype)
            cells += [f"{kernel['alu']:.1f}", bars[group][dtype], f"{kernel['alu_time']:.2f}"]
        rows.append([group, *cells])
    kernels = found["rows"]
    note = (
        f"Instructions of the ALU per element, of the kernel of each group that needs most, at commit "
        f"{found['commit']}; and their time over that of the traffic at the peak of DRAM, by the data sheet of an "
        f"H100. {len(kernels)} kernels, of which {sum(k['spills'] > 0 for k in kernels)} spill, with up to "
        f"{max(k['registers'] for k in kernels)} registers. nvcc {found['nvcc']}, {found['architecture']}, torch "
        f"{found['torch']}; `python -m lab.sass`."
    )
    return markdown(*rows, right=range(1, 7)) + "\n\n" + note


def cuda_simulated():
    found = records.read("cuda-simulated")
    rows = [["simulated", "dtype", "forward / relu", "backward / relu's"]]
    for r in found["rows"]:
        ratios = ("" if r[d] is None else f"{r[d]:.2f}" for d in ("forward", "backward"))
        rows.append([r["gpu"], r["dtype"], *ratios])
    bars = raw_results.BARS["cuda"]["over_relu"]
    rows.append(["at most, on a GPU", "", f"{bars['forward']:.2f}", f"{bars['backward']:.2f}"])
    lanes = found["vectors_per_lane"]
    cycles = (
        f"{direction} {', '.join(f'{lanes[direction][v]:,}' for v in '421')}"
        for direction in ("forward", "backward")
    )
    both = (
        f"{of} {', '.join(f'{x:.2f} ({gpu})' for gpu, x in found[key].items())}"
        for of, key in (
            ("of relu", "both_over_relu"),
            ("of a clamp with the composed backward", "both_over_composed_clamp"),
        )
    )
    low, high = found["misaligned_over_aligned"]
    results = found["results"]
    note = (
        f"A simulation of commit {found['commit']} by {found['simulator']}, no measurement. "
        f"{found['method']} Forward and backward together, float32: {'; '.join(both)}. With 4, 2 and 1 vectors per lane ({lanes['what']}): {'; '.join(cycles)}. "
        f"Memory misaligned by one element: {low} to {high} times the cycles. Results: {results['launches']:,} "
        f"launches of {results['kernels_that_ran']} of {results['kernels_of_a_dtype']} kernels per dtype, "
        f"{results['comparisons'] / 1e6:.1f} million comparisons, {results['discrepancies']} discrepancies."
    )
    return markdown(*rows, right=(2, 3)) + "\n\n" + note


def real_models():
    """The step of real models, and what autograd keeps for it, by setting."""
    found = [records.read(p.stem) for p in sorted(records.FOLDER.glob("real-models-*.jsonl"))]
    settings = list(dict.fromkeys(r["setting"] for r in found[0]["rows"]))
    rows = [["model", "torch", *map(code, settings)]]
    for record in found:
        cases = {(r["setting"], r["model"]): r for r in record["rows"]}
        for model in dict.fromkeys(r["model"] for r in record["rows"]):
            row = [model, record["torch"]]
            for setting in settings:
                here = cases[setting, model]
                time, size = f"{here['milliseconds']:.0f}", f"{here['saved_bytes'] / 2**20:.1f}"
                cell = f"{time}{SPACE}ms, {size}{SPACE}MiB"
                same = here["gradients"] == cases["stock", model]["gradients"]
                row.append(cell + ("" if same else " *"))
            rows.append(row)
    first = found[0]
    cpu = first["machine"]["cpu"]
    data = first.get("data", "random data, of the sizes in the script")
    note = (
        f"Forward and backward, one thread of {cpu}, the default malloc. Each process reports its fastest step; shown is the "
        f"median of {first['rounds']} interleaved processes. Random weights, {data}. "
        f"transformers {first['versions']['transformers']}, timm {first['versions']['timm']}; "
        "[the script](lab/real_models.py)."
        + (
            " *: some gradient differs from stock's in a bit; all others are equal."
            if any("*" in cell for row in rows for cell in row)
            else " All gradients equal stock's to the bit under every pin: in these models no gradient is lost or won at a bound."
        )
    )
    return markdown(*rows) + "\n\n" + note


def audit_cost():
    rows = [["`every`", "added to a step"]]
    found = records.read("audit")
    plain, *audits = found["rows"]
    rows += [[r["every"], f"{r['overhead']:.0%}"] for r in audits]
    size = found["size"]
    note = (
        f"A stack of MobileNetV2 blocks with {found['call_sites']} call sites of `relu6`, a batch of "
        f"{found['batch']} images of {size} x {size}, one thread, {1000 * plain['seconds']:.0f} ms of processor time "
        f"per step without an audit, on a machine with other load. {made_on(found)}; "
        "`python -m benchmarks.audit_cost`."
    )
    return markdown(*rows, right=(0, 1)) + "\n\n" + note


def save_result():
    """What saving the result instead of the input of a clamp saves."""
    found = records.read("save-result")
    units = {"bytes": "bytes per element", "ms": "ms"}
    sides = {"stock": "stock", "patched": "proposal"}
    keys = {
        f"{s}, {u}": f"{unit}, {side}" for u, unit in units.items() for s, side in sides.items()
    }
    rows = [["", *keys.values()]]
    rows += [[code(r["case"]), *(f"{r[k]:g}" for k in keys)] for r in found["rows"]]
    after = found["changed after"]
    sentences = [
        f"{found['n']:,} elements of {found['dtype']}, one thread, {made_on(found)}.",
        found["note"],
        "The price, `clamp(x, 0, 1).mul_(2), backward`: "
        f"stock {after['stock']}, the proposal {after['patched']}.",
    ]
    return markdown(*rows, right=range(1, 5)) + "\n\n" + " ".join(filter(None, sentences))


def patched_backward(name):
    """The backward of clamp and its family, stock's and a series's, and beside hardtanh's."""
    found = records.read(name)
    stock, patched = ({r["case"]: r[side] for r in found["rows"]} for side in ("stock", "patched"))
    cases, columns = (list(dict.fromkeys(c)) for c in zip(*(k.rsplit("; ", 1) for k in stock)))
    yardstick = cases[0]
    rows = [["µs", *(f"{c} {'elements' if c[-2:] != ' 1' else 'element'}" for c in columns)]]
    for case in cases:
        keys = [f"{case}; {column}" for column in columns]
        beside = [patched[k] / patched[f"{yardstick}; {c}"] for k, c in zip(keys, columns)]
        rows.append(
            [
                code(case),
                *(f"{stock[k]:,.0f} → {patched[k]:,.0f} ({b:.2f})" for k, b in zip(keys, beside)),
            ]
        )
    note = (
        f"Stock → `{found['series']}`, and in brackets the latter divided by `{yardstick}`, which has an "
        f"operator of its own in both. Backward alone; forward mode with its forward. One thread, "
        f"{made_on(found)}; the fastest call in a process, the median of {found['processes']} interleaved rounds of "
        f"processes. {found['note']}"
    )
    return markdown(*rows, right=range(1, len(columns) + 1)) + "\n\n" + note.strip()


def proposal(name, *cases):
    """What a proposal does to the operators that it changes."""
    found = records.read(name)
    rows = [r for r in found["rows"] if r["case"].rpartition("; ")[0] in cases]
    sides = {r["case"]: f"{r['stock']:,.0f} → {r['patched']:,.0f}" for r in rows}
    ratio = {r["case"]: f"{r['patched'] / r['stock']:.2f}" for r in rows}
    columns = list(dict.fromkeys(r["case"].rpartition("; ")[2] for r in rows))
    table = [["µs, backward" if "forward" not in cases[0] else "µs", *columns]]
    for case in cases:
        keys = [f"{case}; {column}" for column in columns]
        table.append([code(case), *(f"{sides[k]} ({ratio[k]})" for k in keys)])
    note = (
        f"Elements by dtype: stock → this patch, and the ratio. One thread, {made_on(found)}; the fastest call in a "
        f"process, the median of {found['processes']} interleaved rounds of processes. {found['note']}"
    )
    return markdown(*table, right=range(1, len(columns) + 1)) + "\n\n" + note.strip()


def loops():
    """What a clamp takes by comparisons and by maxima."""
    record = records.read("loops")
    models = ("icelake-server", "sapphirerapids", "znver4", "znver5", "neoverse-v2")
    rows = [["float32, between two numbers", "bytes", *models, "Zen 4, 2^12", "2^16", "2^20"]]
    for rule, name in ((0, "min_norm"), (4, "with_grad")):
        for element, form in (("ElementHere", "compared"), ("WithMax", "maxima")):
            loop = f"NumberForwardOp<{rule}, true, true, {element}<float>, float>"
            (r,) = (r for r in record["rows"] if r["loop"] == loop)
            took = r["nanoseconds, by elements"].values()
            cells = [f"{r[m]:.0f}" if m in r else "" for m in models]
            cells = [r["bytes"], *cells, *(f"{ns:.1f}" for ns in took)]
            rows.append([f"`{name}`, {form}", *cells])
    note = (
        f"Per word of 64 elements: the bytes that it moves; cycles by llvm-mca {record['llvm']}, of the loops for AVX-512 "
        "and, on neoverse-v2, for NEON, which knows neither memory nor that a processor slows down; and "
        f"nanoseconds of the loop alone, by the number of elements, on {made_on(record)}. "
        "`python -m lab.mca` lists the cycles of all loops."
    )
    return markdown(*rows, left=1) + "\n\n" + note


def pin():
    """One row a way to pin, one column what is called."""
    found = records.read("pin")
    cases = {r.pop("case"): r for r in found["rows"]}
    rows = [["ns per call", *cases]]
    for way in next(iter(cases.values())):
        rows.append([way, *(ways[way] for ways in cases.values())])
    note = f"Tensors of one element, float32, one thread, {made_on(found)}; the fastest of many rounds. Entering and leaving a block takes {found['a block, microseconds']} µs."
    return markdown(*rows, right=range(1, len(cases) + 1)) + "\n\n" + note


def starting():
    """What a program pays for clampgrad and for CLAMPGRAD_GRADIENT."""
    record = records.read("starting")
    found = {r["what"]: [r[k] for k in ("median", "low", "high")] for r in record["rows"]}
    rows = [["seconds of CPU", "without", "`CLAMPGRAD_GRADIENT=inclusive`"]]
    for what in ("import torch", "a step"):
        pair = (found[name] for name in (what, f"{what}, pinned"))
        rows.append([what, *("{} ({} to {})".format(*map(raw_results.duration, f)) for f in pair)])
    ms = {name: f"{1000 * median:.2g}" for name, (median, *_) in found.items()}
    note = (
        f"Median (quartiles) of {record['processes']} processes, one thread, {made_on(record)}. A step is forward, "
        "backward and update of two layers of 64 x 64 with a clamp between them, on 64 samples in float32. Where the "
        f"variable is not set, `import torch` takes {ms['the entry point']} ms more than without clampgrad. "
        f"`import clampgrad` after it takes {ms['import clampgrad, compiled']} ms with the compiled implementation and "
        f"{ms['import clampgrad, portable']} ms with the portable one (`python -m benchmarks.starting`)."
    )
    return markdown(*rows, right=(1, 2)) + "\n\n" + note


def from_nothing():
    """How long the commands of README take."""
    r = records.read("from-nothing")
    took = {case["what"]: minutes(case["seconds"]) for case in r["rows"]}
    return (
        f"In a fresh clone, on {r['machine']['cores']} cores of {r['machine']['cpu']}, it took "
        f"{took['installing torch']} to install torch {r['torch']}, which depends on the network, then "
        f"{took['demo']} for `make demo`, which compiles the extension, and then {took['test']} for `make test`."
    )


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


TABLES = {
    "real_models": real_models,
    "save_result": save_result,
    "joint_backward": lambda: patched_backward("joint-2.13.0"),
    "one_kernel": lambda: proposal("one-kernel", "maximum(x, y)", "fmax(x, y)", "clamp_min(x, y)"),
    "pin": pin,
    "starting": starting,
    "memory": memory,
    "speed": speed,
    "speed_bars": speed_bars,
    "speed_used": speed_used,
    "speed_times": speed_times,
    "speed_saved": speed_saved,
    "speed_model": speed_model,
    "cuda_instructions": cuda_instructions,
    "cuda_simulated": cuda_simulated,
    "audit_cost": audit_cost,
    "loops": loops,
    "from_nothing": from_nothing,
}
