"""Fill the generated tables of README.md and docs/: `make pictures` does it too.

A table stands between <!-- generated: NAME --> and <!-- end -->; nothing else is touched. What is
in it comes from docs/*.json and docs/examples/ (measured by the demo, the pin's benchmark and the
examples), benchmarks/results/, study/results/, docs/frameworks.yaml (measured elsewhere), docs/choose.yaml
(advice) and conventions.yaml (the contract).
"""

import json
import re
import statistics
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

import report  # noqa: E402
import study.tables  # noqa: E402

PAGES = (
    "README.md",
    "benchmarks/README.md",
    "docs/audit.md",
    "docs/conventions.md",
    "docs/history.md",
    "docs/examples.md",
    "docs/howto/nan_guards.md",
    "docs/howto/qat.md",
    "docs/howto/swiglu.md",
    "docs/migration.md",
    "docs/performance.md",
    "docs/pin.md",
    "docs/private_names.md",
    "docs/programs.md",
    "docs/study.md",
    "docs/upstream/build.md",
    "docs/upstream/propose.md",
    "docs/upstream/verify.md",
    "patches/proposals/fused-backward/PULL_REQUEST.md",
    "patches/proposals/save-result/PULL_REQUEST.md",
)
DEMO = json.loads((ROOT / "docs/demo.json").read_text())
PROPOSAL = json.loads((ROOT / "benchmarks/results/save-result.json").read_text())
SOURCE_BUILD = json.loads((ROOT / "docs/source_build.json").read_text())
PIN = json.loads((ROOT / "docs/pin.json").read_text())
FIRST_PINS = json.loads((ROOT / "benchmarks/results/first-pins.json").read_text())
PROGRAMS = json.loads((ROOT / "docs/programs.json").read_text())
VARIABLE = json.loads((ROOT / "benchmarks/results/variable.json").read_text())
AUTOLOAD = json.loads((ROOT / "benchmarks/results/autoload.json").read_text())
# Written by tools/from_nothing.py; not there until it has run.
FROM_NOTHING = ROOT / "benchmarks/results/from-nothing.json"
EXAMPLES = {p.stem: json.loads(p.read_text()) for p in sorted(ROOT.glob("docs/examples/*.json"))}
FRAMEWORKS = yaml.safe_load((ROOT / "docs/frameworks.yaml").read_text())
SPEED = {
    path.stem.removeprefix("cpu-"): json.loads(path.read_text())
    for path in sorted((ROOT / "benchmarks/results").glob("cpu-*.json"), key=lambda path: path.stem)
}
*SASS, SIMULATED = (
    json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    for name in ("cuda-sass-before", "cuda-sass", "cuda-simulated")
)
CHOICES = yaml.safe_load((ROOT / "docs/choose.yaml").read_text())
AUDIT_COST = json.loads((ROOT / "benchmarks/results/audit-2.13.0.json").read_text())
CONTRACT = yaml.safe_load((ROOT / "conventions.yaml").read_text())
PSEUDO = [key for key in CONTRACT["pseudo_gradients"]["rows"][0] if key != "position"]
EXACT = [name for name in CONTRACT["conventions"] if name not in PSEUDO]


# ---- Markdown ------------------------------------------------------------------------------------

SPACE = "\N{NO-BREAK SPACE}"  # between a number and its unit, in cells that are narrow


def table(*rows, right=()):
    """The first row is the heading; `right` are the columns that are aligned so."""
    rule = ["---:" if i in right else "---" for i in range(len(rows[0]))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (rows[0], rule, *rows[1:]))


def code(text):
    return f"`{text}`"


def several(values):
    """Gradients of several arguments, in their order; of one alone, without brackets."""
    values = values if isinstance(values, list) else [values]
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


# ---- Advice --------------------------------------------------------------------------------------


def choices():
    """One row per task."""
    rows = [["You want to", "Use", "Because", "See"]]
    for row in CHOICES:
        links = ", ".join(f"[{text}]({path})" for text, path in row["see"].items())
        rows.append([row["task"], row["use"], row["because"], links])
    return table(*rows)


# ---- Measured ------------------------------------------------------------------------------------


def names():
    """Every convention, its alias, whether it is a derivative, and its rule."""
    rows = [["name", "alias", "kind", "rule"]]
    aliases = {name: alias for alias, name in CONTRACT["aliases"].items()}
    for name, rule in CONTRACT["conventions"].items():
        alias = code(aliases[name]) if name in aliases else ""
        kind = "exact" if name in EXACT else "pseudo-gradient"
        rows.append([code(name), alias, kind, rule])
    return table(*rows)


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
        (r["group"], r["function"]): r for r in SPEED["2.13.0"]["kept"] if r["dtype"] == "float32"
    }
    ours, theirs = (kept["clamp", f]["saved_bits"] for f in ("clampgrad.clamp", "torch.clamp"))
    return (
        f"For backward it keeps **{ours:g} bit per element**; `torch.clamp`, `F.hardtanh` and `F.relu6` "
        f"keep {theirs:g} in float32."
    )


def frameworks():
    def cell(value):
        if isinstance(value, dict):
            return ", ".join(f"{v} ({code(k)})" for k, v in value.items())
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    columns = {
        "clip": "clip at a bound",
        "constant": "max(x, constant) at a tie",
        "pair": "max(x, y) at a tie: x, y",
        "collapsed": "x = lo = hi",
    }
    rows = [
        [f"{f['name']} {', '.join(f['versions'])}", *(cell(f[key]) for key in columns)]
        for f in FRAMEWORKS["frameworks"]
    ]
    return table(["", *columns.values()], *rows) + f"\n\nAs measured: {FRAMEWORKS['measured']}."


UNNAMED = "a processor that the record does not name"


def made_on(record):
    """The torch and the machine of a record. Older records do not name the processor, and so this says that."""
    m = record.get("machine")
    if not isinstance(m, dict):
        m = {**record, "system": m or record["system"]}
    parts = [f"torch {record['torch']}", m.get("cpu") or f"{UNNAMED} ({m['system']})"]
    if "cores" in m:
        parts.append(f"{m['cores']} cores")
    if "instruction_set" in m:
        parts.append(m["instruction_set"])
    return ", ".join(parts)


def machine(results):
    return f"{made_on(results)}; `{results['command']}` at commit {results['commit']}."


def used():
    """{(record, dtype, group, rival): {n: the rival's time over ours}} with the default malloc."""
    found = {}
    for release, results in SPEED.items():
        if not report.seconds(results, group="maximum", malloc="default"):
            continue  # a run from before all of these were timed so
        for dtype in ("float32", "bfloat16"):
            for group, rivals in USED.items():
                for n in sorted({r["n"] for r in results["rows"]}):
                    key = dict(group=group, n=n, dtype=dtype, threads=1)
                    times = report.seconds(results, direction="both", malloc="default", **key)
                    for rival in rivals if times else ():
                        ratio = (
                            times[rival]["median"] / times[report.ours(results, group)]["median"]
                        )
                        found.setdefault((release, dtype, group, rival), {})[n] = ratio
    return found


USED = {
    "clamp": ("torch.clamp", "F.hardtanh", "F.relu"),
    "maximum": ("torch.maximum",),
    "clamp(x, lo, hi)": ("torch.clamp",),
}


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
            ends = (f"{ratios[n]:.2g} ({report.size(n)})" for n in (worst, best))
            cells.append(" to ".join(ends))
        rows.append([short_machine(release), dtype, *cells])
    shown = dict.fromkeys(release for release, *_ in found)
    note = " ".join(machine(SPEED[release]) for release in shown)
    return table(*rows) + "\n\nThe number of elements is in brackets. " + note


def short_machine(release):
    m, torch = SPEED[release]["machine"], SPEED[release]["torch"].partition("+")[0]
    cpu = m["cpu"].replace("(R)", "").removesuffix(" Processor")
    return f"{cpu}, {m['instruction_set']}, torch {torch}"


def speed_bars():
    """Every ratio that must hold, beside what was measured."""
    measured = []
    for results in SPEED.values():
        found = {}
        for what, *rest in report.bars(results):
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
        table(*rows, right=range(2, 3 + len(SPEED)))
        + "\n\nBold: below the target. Of: the limit. Empty: not measured there. "
        + note
    )


def speed_pairs():
    """Of every record of two builds beside each other: one sentence, and what became slower."""
    parts = []
    for path in sorted((ROOT / "benchmarks/results").glob("pairs-*.json")):
        found = json.loads(path.read_text())
        controls, ours = [], []
        for row in found["rows"]:
            control = row["case"].split(" | ")[1] in found["controls"]
            (controls if control else ours).append(row)
        slower = sorted(
            (r for r in ours if r["ratio"] > found["slower"]), key=lambda r: -r["ratio"]
        )
        low, high = (pick(r["ratio"] for r in controls) for pick in (min, max))
        m = found["machine"]
        parts.append(
            f"{found['after']} over {found['before']}: the median of {len(ours)} cases is "
            f"{statistics.median(r['ratio'] for r in ours):.2f} times the time, and {len(slower)} take more than "
            f"{found['slower']:g} times. {' and '.join(map(code, found['controls']))}, in which the two cannot differ, "
            f"take {low:.2f} to {high:.2f} times. torch {found['torch']}, {m['cpu']}, {m['instruction_set']}, "
            f"{found['pairs']} pairs of processes."
        )
        if slower:
            rows = [[r["case"].replace(" | ", ", "), f"{r['ratio']:.2f}"] for r in slower[:10]]
            parts.append(table(["slowest", "times"], *rows, right=(1,)))
    return "\n\n".join(parts)


def speed_times():
    """Medians and quartiles of the clamps, one thread."""
    results = SPEED["2.13.0"]
    key = dict(group="clamp", dtype="float32", threads=1, malloc="fixed")
    sizes = (1, 2**12, 2**16, 2**20, 2**24)
    parts = []
    for direction in ("forward", "backward", "both"):
        columns = [report.seconds(results, n=n, direction=direction, **key) for n in sizes]
        rows = [[direction, *(f"N = {report.size(n)}" for n in sizes)]]
        for function in columns[0]:
            times = (column[function] for column in columns)
            rows.append([code(function), *map(report.with_spread, times)])
        parts.append(table(*rows, right=range(1, 1 + len(sizes))))
    note = "Median (lower to upper quartile), float32, one thread. " + machine(results)
    return "\n\n".join([*parts, note])


def cuda_instructions():
    """The machine code of the CUDA kernels, before they were counted and now."""
    before, now = SASS
    bars = {bar["group"]: bar for bar in report.BARS["cuda"]["alu"]}
    dtypes = ("float32", "bfloat16")
    rows = [
        ["", *(f"{d}: {what}" for d in dtypes for what in ("ALU", "at most", "of DRAM's time"))]
    ]
    for group in report.CUDA_GROUPS:
        cells = []
        for dtype in dtypes:
            old, new = (report.cuda_kernel(results, group, dtype) for results in (before, now))
            cells.append(f"{old['alu']:.1f} -> {new['alu']:.1f}")
            cells.append(bars[group][dtype])
            cells.append(f"{old['alu_time']:.2f} -> {new['alu_time']:.2f}")
        rows.append([group, *cells])
    worst = (
        f"{len(r['kernels'])} kernels, of which {sum(k['spills'] > 0 for k in r['kernels'].values())} spill, "
        f"with up to {max(k['registers'] for k in r['kernels'].values())} registers"
        for r in (before, now)
    )
    note = (
        f"Instructions of the ALU per element, of the kernel of each group that needs most: {before['commit']} "
        f"-> {now['commit']}; and their time over that of the traffic at the peak of DRAM, by the data sheet of "
        f"an H100. {' -> '.join(worst)}. nvcc {now['nvcc']}, {now['architecture']}, torch {now['torch']}; "
        "`python benchmarks/sass.py`."
    )
    return table(*rows, right=range(1, 7)) + "\n\n" + note


def cuda_simulated():
    rows = [["simulated", "dtype", "forward / relu", "backward / relu's"]]
    for r in SIMULATED["over_relu"]:
        ratios = ("" if r[d] is None else f"{r[d]:.2f}" for d in ("forward", "backward"))
        rows.append([r["gpu"], r["dtype"], *ratios])
    bars = report.BARS["cuda"]["over_relu"]
    rows.append(["at most, on a GPU", "", f"{bars['forward']:.2f}", f"{bars['backward']:.2f}"])
    lanes = SIMULATED["vectors_per_lane"]
    cycles = (
        f"{direction} {', '.join(f'{lanes[direction][v]:,}' for v in '421')}"
        for direction in ("forward", "backward")
    )
    both = (
        f"{of} {', '.join(f'{x:.2f} ({gpu})' for gpu, x in SIMULATED[key].items())}"
        for of, key in (
            ("of relu", "both_over_relu"),
            ("of a clamp with the composed backward", "both_over_composed_clamp"),
        )
    )
    low, high = SIMULATED["misaligned_over_aligned"]
    found = SIMULATED["results"]
    note = (
        f"A simulation of commit {SIMULATED['commit']} by {SIMULATED['simulator']}, no measurement. "
        f"{SIMULATED['method']} Forward and backward together, float32: {'; '.join(both)}. With 4, 2 and 1 vectors per lane ({lanes['what']}): {'; '.join(cycles)}. "
        f"Memory misaligned by one element: {low} to {high} times the cycles. Results: {found['launches']:,} "
        f"launches of {found['kernels_that_ran']} of {found['kernels_of_a_dtype']} kernels per dtype, "
        f"{found['comparisons'] / 1e6:.1f} million comparisons, {found['discrepancies']} discrepancies."
    )
    return table(*rows, right=(2, 3)) + "\n\n" + note


def speed_saved():
    """What the graph keeps, and what a step has resident."""
    results = SPEED["2.13.0"]
    rows = [["", "function", "float32, bits", "bfloat16, bits", "float32, peak MiB"]]
    kept = {
        (r["group"], r["function"], r["dtype"]): r
        for r in results["kept"]
        if "_mingrad" not in r["group"]  # which are like the front doors
    }
    for group, function, dtype in kept:
        if dtype == "float32":
            wide, narrow = kept[group, function, dtype], kept[group, function, "bfloat16"]
            peak = "" if wide["peak_bytes"] is None else f"{wide['peak_bytes'] / 2**20:.1f}"
            bits = (f"{r['saved_bits']:g}" for r in (wide, narrow))
            rows.append([group, code(function), *bits, peak])
    n = report.size(results["kept"][0]["n"])
    note = (
        "Bits per element saved for backward, and how far a step with N elements raises resident memory: "
        f"N = {n}, the default malloc."
    )
    return table(*rows, right=(2, 3, 4)) + "\n\n" + note


def speed_model():
    results = SPEED["2.13.0"]
    model = results["model"]
    rows = [["activation", "step", "saved for backward"]]
    for name, saved in model["saved_bytes"].items():
        spread = report.with_spread(model["seconds"][name])
        rows.append([code(name), spread, f"{saved / 2**20:.1f} MiB"])
    size = model["size"]
    note = (
        f"A batch of {model['batch']} images of {size} x {size}, float32, one thread, malloc set to recycle "
        f"memory ([why](../benchmarks/README.md#how-it-is-measured)). {machine(results)}"
    )
    return table(*rows, right=(1, 2)) + "\n\n" + note


# ---- The audit -----------------------------------------------------------------------------------


def real_models():
    """The step of real models, and what autograd keeps for it, by setting."""
    found = [
        json.loads(path.read_text())
        for path in sorted((ROOT / "benchmarks/results").glob("real-models-*.json"))
    ]
    settings = list(found[0]["settings"])
    rows = [["model", "torch", *map(code, settings)]]
    for record in found:
        for model, stock in record["settings"]["stock"].items():
            row = [model, record["versions"]["torch"]]
            for setting in settings:
                here = record["settings"][setting][model]
                time, size = f"{here['milliseconds']:.0f}", f"{here['saved_bytes'] / 2**20:.1f}"
                cell = f"{time}{SPACE}ms, {size}{SPACE}MiB"
                row.append(cell + ("" if here["gradients"] == stock["gradients"] else " *"))
            rows.append(row)
    first = found[0]
    cpu = first["machine"] if isinstance(first["machine"], str) else first["machine"]["cpu"]
    data = first.get("data", "random data, of the sizes in the script")
    note = (
        f"Forward and backward, one thread of {cpu}, the default malloc. Each process reports its fastest step; shown is the "
        f"median of {first['rounds']} interleaved processes. Random weights, {data}. "
        f"transformers {first['versions']['transformers']}, timm {first['versions']['timm']}; "
        "[the script](benchmarks/real_models.py)."
        + (
            " *: some gradient differs from stock's in a bit; all others are equal."
            if any("*" in cell for row in rows for cell in row)
            else " All gradients equal stock's to the bit under every pin: in these models no gradient is lost or won at a bound."
        )
    )
    return table(*rows) + "\n\n" + note


def audit_example():
    """The report on the first program of the page, as PyTorch 2.13 gives it."""
    return "```text\n" + (ROOT / "docs/audit_example.txt").read_text() + "```"


def audit_cost():
    rows = [["`every`", "added to a step"]]
    rows += [[n, f"{share:.0%}"] for n, share in AUDIT_COST["overhead"].items()]
    size, plain = AUDIT_COST["size"], AUDIT_COST["seconds"]["plain"]
    note = (
        f"A stack of MobileNetV2 blocks with {AUDIT_COST['call_sites']} call sites of `relu6`, a batch of "
        f"{AUDIT_COST['batch']} images of {size} x {size}, one thread, {1000 * plain:.0f} ms of processor time "
        f"per step without an audit, on a machine with other load. {made_on(AUDIT_COST)}; "
        "`python benchmarks/audit.py`."
    )
    return table(*rows, right=(0, 1)) + "\n\n" + note


# ---- The examples --------------------------------------------------------------------------------


def pgd():
    accuracy = EXAMPLES["pgd_at_the_box"]["robust_accuracy"]
    rows = [[code(how), f"{value:.1%}"] for how, value in accuracy.items()]
    return table(["`gradient=`", "accuracy under attack"], *rows, right=[1])


def dead_pixels():
    """What becomes of the image where the loss is a mean over its values, and where it is a sum."""
    fit = DEMO["image_fit"]
    rows = [["`gradient=`", "wrong pixels, mean of squares", "sum of squares"]]
    for how in ("min_norm", "with_grad", "restoring", "straight_through"):
        rows.append([code(how), *(f"{fit['wrong'][how][loss]:.0%}" for loss in ("mean", "sum"))])
    note = (
        f"An image of {fit['size']} x {fit['size']} pixels fitted through `clamp(0, 1)` in "
        f"{fit['steps']} steps of Adam, learning rate {fit['learning_rate']:g}; "
        f"{fit['wrong']['start']:.0%} of the pixels are wrong (off by more than "
        f"{fit['tolerance']:g}) at the start. Measured with torch {DEMO['torch']}."
    )
    return table(*rows, right=(1, 2)) + "\n\n" + note


def nan_guard():
    slopes, weights = EXAMPLES["nan_guard"].values()
    rows = [[code(how), slope, weights[how]] for how, slope in slopes.items()]
    return table(["`gradient=`", "slope at 0", "weight after a step"], *rows)


def parameter_at_its_bound():
    rows = [[code(how), f"{x:.3g}"] for how, x in EXAMPLES["parameter_at_its_bound"]["end"].items()]
    return table(["`gradient=`", "x at the end"], *rows, right=[1])


def relu6_memory():
    rows = [[code(name), f"{size:.2f}"] for name, size in EXAMPLES["relu6_memory"]["MiB"].items()]
    return table(["", "MiB saved for backward"], *rows, right=[1])


# ---- The contract --------------------------------------------------------------------------------


def numbers():
    """The gradient of x where the bounds are numbers."""
    rows = [["operator", "position", *map(code, EXACT)]]
    for name, operator in CONTRACT["operators"].items():
        for row in operator["rows"]:
            if "numbers" in row:
                rows.append([code(name), row["position"], *(row["numbers"][c] for c in EXACT)])
    return table(*rows)


def tensors():
    """The gradients of all arguments where all are Tensors."""
    parts = []
    for name, operator in CONTRACT["operators"].items():
        arguments = ", ".join(operator["arguments"])
        rows = [[code(f"{name}({arguments})"), "A", *map(code, EXACT)]]
        for row in operator["rows"]:
            active = ", ".join(row["active"]) or "none"
            rows.append([row["position"], active, *(several(row["tensors"][c]) for c in EXACT)])
        parts.append(table(*rows))
    return "\n\n".join(parts)


def migration():
    """Where the gradients of the two ends of PyTorch's change differ."""
    rows = [["call", "at", "arguments", "`inclusive`: up to 2.13", "`joint`: 2.15"]]
    for kind in ("numbers", "tensors"):
        for name, operator in CONTRACT["operators"].items():
            for row in operator["rows"]:
                old, new = (row.get(kind, {}).get(c) for c in ("inclusive", "joint"))
                if old != new:
                    cells = (several(gradient) for gradient in (old, new))
                    rows.append([code(name), row["position"], kind, *cells])
    return table(*rows)


def pseudo_gradients():
    columns = CONTRACT["pseudo_gradients"]["columns"]
    rows = [["`gradient=`", "position", *columns]]
    for key in PSEUDO:
        for row in CONTRACT["pseudo_gradients"]["rows"]:
            rows.append([code(key), row["position"], *row[key]])
    return table(*rows)


def examples(keys):
    """One row an example; the gradients of each argument in brackets of their own."""
    rows = [["call", "at", *map(code, keys)]]
    for example in CONTRACT["examples"]:
        if keys[0] not in example:
            continue
        arguments = {k: v for k, v in example.items() if k not in ("call", *EXACT, *PSEUDO)}
        at = "; ".join(f"{k} = {', '.join(map(str, v))}" for k, v in arguments.items())
        gradients = [", ".join(several(values) for values in example[key]) for key in keys]
        rows.append([code(example["call"]), at, *gradients])
    return table(*rows)


def pin():
    """One row a way to pin, one column what is called."""
    cases = PIN["nanoseconds"]
    rows = [["ns per call", *cases]]
    for way in next(iter(cases.values())):
        rows.append([way, *(ways[way] for ways in cases.values())])
    note = f"Tensors of one element, float32, one thread, {made_on(PIN)}; the fastest of many rounds. Entering and leaving a block takes {PIN['a block, microseconds']} µs."
    return table(*rows, right=range(1, len(cases) + 1)) + "\n\n" + note


def first_pins():
    """How often a first pin that threads raced for failed."""
    rows = [["threads", "first pins", "failed"]]
    for row in FIRST_PINS["rows"]:
        rows.append([row["threads"], f"{row['trials']:,}", row["failed"]])
    control = FIRST_PINS["without the lock"]
    note = (
        f"Each first pin is in a process of its own, at a switch interval of 1e-7, and `torch.compile` follows it. "
        f"Without the lock, {control['failed']} of {control['trials']} fail with {control['threads']} threads. "
        f"{made_on(FIRST_PINS)}."
    )
    return table(*rows, right=range(3)) + "\n\n" + note


def variable():
    """What a program pays for CLAMPGRAD_GRADIENT: one row what is timed."""
    units = {"import torch": ("s", 1), "a step": ("µs", 1e6)}
    rows = [["", "without", "`inclusive`", "difference of a pair (quartiles)"]]
    for what, found in VARIABLE["seconds of CPU"].items():
        unit, scale = units[what]
        low, median, high = (scale * found["difference"][k] for k in ("low", "median", "high"))
        times = (f"{scale * found[way]:.3g} {unit}" for way in ("without", "inclusive"))
        rows.append([what, *times, f"{median:+.2g} {unit} ({low:+.2g} to {high:+.2g})"])
    own = 1000 * AUTOLOAD["seconds of CPU"]["the entry point"]["median"]
    note = (
        f"Processor time, medians of {VARIABLE['pairs']} pairs of processes that take turns, one thread, "
        f"{made_on(VARIABLE)}. A step is forward, backward and update of two layers of 64 x 64 with a clamp between "
        f"them, on 64 samples in float32 (`benchmarks/variable.py`). Where the variable is not set, `import torch` "
        f"takes {own:.1f} ms more than without clampgrad (`benchmarks/autoload.py`)."
    )
    return table(*rows, right=(1, 2, 3)) + "\n\n" + note


# ---- A fresh clone: benchmarks/results/from-nothing.json -----------------------------------------


def from_nothing():
    """How long the commands of README take; nothing as long as nobody has measured it."""
    if not FROM_NOTHING.exists():
        return ""
    r = json.loads(FROM_NOTHING.read_text())
    took = {name: minutes(value) for name, value in r["seconds"].items()}
    return (
        f"In a fresh clone, on {r['machine']['cores']} cores of {r['machine']['cpu']}, it took "
        f"{took['installing torch']} to install torch {r['torch']}, which depends on the network, then "
        f"{took['demo']} for `make demo`, which compiles the extension, and then {took['test']} for `make test`."
    )


# ---- Programs on other people's libraries: docs/programs.json -----------------------------------


def programs():
    """One row a program: what a pin changed, and where that held."""
    elsewhere = {
        "portable": ["portable inclusive", "portable joint"],
        "`torch.compile`": ["compiled inclusive", "compiled joint"],
        "later release": ["later stock", "later inclusive", "later joint"],
    }
    rows = [["program", "lines", "calls", "`inclusive`", "`joint`", "clamp", *elsewhere]]
    reasons = []

    def reason(text):
        if text not in reasons:
            reasons.append(text)
        return f"({reasons.index(text) + 1})"

    def cell(program, settings):
        runs = [program["runs"][s] for s in settings if s in program["runs"]]
        if not runs:
            return (
                reason(program["eager"])
                if "compiled joint" in settings and program["eager"]
                else "untried"
            )
        told = [r.get("does not run") or r.get("because") for r in runs]
        partly = ["untried in part"] * (len(runs) < len(settings))
        return " ".join([*dict.fromkeys(map(reason, filter(None, told))), *partly]) or "holds"

    for name, program in PROGRAMS["programs"].items():
        runs = program["runs"]
        joint, calls = runs["joint"], sum(runs["joint"]["reached"].values())
        changed, numbers = joint["differs first at"], [joint.get("from"), joint.get("to")]
        changes = f"{changed}: {' → '.join(dict.fromkeys(numbers))}" if changed else "same"
        cells = [cell(program, settings) for settings in elsewhere.values()]
        rows.append(
            [
                code(name),
                len(program["lines"]),
                calls,
                cell(program, ["inclusive"]),
                changes,
                code(program["clamp"]) if changed else "",
                *cells,
            ]
        )
    numbered = "\n".join(f"{i}. {text}" for i, text in enumerate(reasons, 1))
    releases = " and ".join(PROGRAMS["releases"])
    note = f"PyTorch {releases}, {PROGRAMS['machine']}."
    return table(*rows, right=(1, 2)) + f"\n\n{numbered}\n\n{note}"


def library_tests():
    """Their own tests, without a pin and under `inclusive`, of the libraries that the record has."""
    rows = [["library", "tests", "calls", "without a pin", "otherwise under `inclusive`"]]
    files = []
    for name, found in PROGRAMS["tests"].items():
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in found["stock"].items())
        differ = "; ".join(f"{k}: {a}, {b}" for k, (a, b) in found["differ"].items()) or "none"
        of = f"{name} {found['version']}, torch {found['torch']}"
        rows.append([of, f"{found['tests']:,}", f"{found['calls']:,}", counts, differ])
        files.append(f"{name}: {', '.join(map(code, found['files']))}")
    return f"{table(*rows, right=(1, 2))}\n\n{'; '.join(files)}." if files else "None is recorded."


def program_libraries():
    """The versions, per release."""
    releases = PROGRAMS["releases"]
    rows = [["library", *releases]]
    for name in next(iter(releases.values())):
        rows.append([name, *(found[name] or "none" for found in releases.values())])
    return table(*rows)


def save_result():
    """What saving the result instead of the input of a clamp saves."""
    stock, proposal = PROPOSAL["stock"], PROPOSAL["patched"]
    keys = {"bytes kept per element": "bytes per element", "ms": "ms"}
    heading = [f"{unit}, {side}" for unit in keys.values() for side in ("stock", "proposal")]
    rows = [["", *heading]]
    for case in stock["ms"]:
        rows.append([code(case), *(f"{s[k][case]:g}" for k in keys for s in (stock, proposal))])
    price = "clamp(x, 0, 1).mul_(2), backward"
    sentences = [
        f"{stock['n']:,} elements of {stock['dtype']}, one thread, {made_on(PROPOSAL)}.",
        PROPOSAL["note"],
        f"The price, `{price}`: stock {stock[price]}, the proposal {proposal[price]}.",
    ]
    return table(*rows, right=range(1, 5)) + "\n\n" + " ".join(filter(None, sentences))


def patched_backward(file):
    """The backward of clamp and its family, stock's and a series's, and beside hardtanh's."""
    found = json.loads((ROOT / "benchmarks/results" / file).read_text())
    stock, patched = found["stock"], found["patched"]
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
        f"{made_on(found)}; the fastest call in a process, the median of {found['rounds']} interleaved rounds of "
        f"processes. {found['note']}"
    )
    return table(*rows, right=range(1, len(columns) + 1)) + "\n\n" + note.strip()


def verified():
    """What `verify` found, release by release: docs/verified.json."""
    rows = [["torch", "series", "gradients", "points that changed", "OpInfo samples"]]
    for r in json.loads((ROOT / "docs/verified.json").read_text()):
        convention = "unchanged" if r["unchanged"] else r["convention"]
        numbers = f"{r['points that changed']:,}", f"{r['opinfo samples']:,}"
        rows.append([r["torch"], code(r["series"]), convention, *numbers])
    return table(*rows, right=(3, 4))


# ---- What is private in torch --------------------------------------------------------------------


def private_names():
    """One row a name, by what happens where it is gone; the table is python/clampgrad/_torch/private_names.py."""
    from clampgrad._torch.private_names import PRIVATE

    record = json.loads((ROOT / "docs/private_names.json").read_text())
    first, since = record["releases"][0], record["since"]
    sources = {path: path.read_text() for path in sorted(ROOT.glob("python/**/*.py"))}
    parts = []
    for use in PRIVATE.values():
        rows = [["name", "where it is used", "since", "what for"]]
        for name, purpose in use.names.items():
            last = re.escape(re.split(r"[.:]", name)[-1])
            where = [
                code(path.relative_to(ROOT / "python/clampgrad"))
                for path, text in sources.items()
                if re.search(rf"\b{last}\b", text) and path.name != "private_names.py"
            ]
            age = f"{first} or before" if since[name] == first else since[name]
            rows.append([code(name.replace(":", ".")), ", ".join(where), age, purpose])
        parts.append(f"If one of these is gone: {use.gone}.\n\n{table(*rows)}")
    oldest, latest = first, record["releases"][-1]
    note = f"Since when: as the Python sources and stubs of {oldest} to {latest} show it."
    return "\n\n".join([*parts, note])


def function_calls():
    """What the compiled functions save over functions of Python."""
    record = json.loads((ROOT / "benchmarks/results/function-calls.json").read_text())
    rows = [["a call of `clamp`", "elements", "compiled, ns", "Python, ns", "saved", "quartiles"]]
    for r in record["rows"]:
        quartiles = " to ".join(f"{q:.0%}" for q in r["quartiles"])
        times = r["compiled, ns"], r["Python, ns"]
        rows.append([r["case"], r["elements"], *times, f"{r['saved']:.0%}", quartiles])
    note = f"Medians of {record['rounds']} rounds that take turns, float32, one thread, {made_on(record)}."
    return table(*rows, right=range(1, 6)) + "\n\n" + note


INTERNAL = re.compile(
    r"torch/csrc/|ATen/functorch/|ATen/native/|/impl/|TLS\.h|SavedTensorHooks|Legacy"
)


def internal_headers():
    """Header -> the files that include it."""
    found = {}
    for path in sorted(ROOT.glob("csrc/**/*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for header in re.findall(r"#include <((?:ATen|c10|torch)/[^>]+)>", path.read_text()):
                if INTERNAL.search(header):
                    found.setdefault(header, []).append(path.relative_to(ROOT / "csrc"))
    return found


def private_headers():
    rows = [["header", "included by"]]
    for header, files in sorted(internal_headers().items()):
        rows.append([code(header), ", ".join(map(code, files))])
    return table(*rows)


# ---- PyTorch, built from source: docs/source_build.json -----------------------------------------


def states():
    """(state as it is called in a table, its steps)."""
    called = {"stock": "stock", "undone": "undone"}
    for name, steps in SOURCE_BUILD["states"].items():
        yield called.get(name, code(name)), steps


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def source_build():
    """What was built, and which gradients it has."""
    head = ["", "build", "files compiled", "`clamp(x, 0, 1)` at 0", "numbers", "Tensors"]
    rows = [[*head, "points that differ from stock", "failures"]]
    proved = SOURCE_BUILD["proved"].values()
    for (name, steps), proofs in zip(states(), proved, strict=True):
        build, found = steps["build"], steps["gradients"]
        at_bound = steps["package"]["clamp(x, 0, 1) at 0"]
        row = [name, minutes(build["seconds"]), build["files"], f"{at_bound:g}"]
        row += [", ".join(found[kind]) or "of none" for kind in ("numbers", "tensors")]
        differ = f"{found['points that changed']:,} of {found['points']:,}"
        differ += f" ({found['as verify counts them']:,})"
        failures = sum(len(proof) for proof in proofs.values() if not isinstance(proof, str))
        rows.append([*row, differ, failures])
    tree, machine, probe = (SOURCE_BUILD[key] for key in ("tree", "machine", "probe"))
    total = sum(s["seconds"] for _, steps in states() for s in steps.values())
    flags = [f"`{k}={v}`" for k, v in SOURCE_BUILD["flags"].items() if not is_usual(k, v)]
    whole = SOURCE_BUILD["from nothing"] and SOURCE_BUILD["starts"] == 1
    note = (
        f"PyTorch {tree['release']}, {probe['jobs']} jobs on {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}; {total / 60:.0f} minutes in all. "
        f"`--minimal`, with {', '.join(flags)}. "
        f"{'From a checkout without a build, in one piece. ' if whole else ''}{SOURCE_BUILD['note']}"
    )
    return table(*rows, right=range(1, 8)) + "\n\n" + note.strip()


def proposals_built():
    """What PyTorch's own build and tests said of the proposals."""
    found = json.loads((ROOT / "docs/proposals_built.json").read_text())
    head = ["proposal", "files compiled", "points that differ from stock", "failures"]
    rows = [[*head, "results of upstream's tests that differ", "the proposal's own tests"]]
    for name, built in found["proposals"].items():
        judged, files = built["gradients"], built["tests"]
        differences = [d for file in files.values() for d in file["differences"]]
        differ = [d for d in differences if d[1] != "not there"]
        added = "".join(p.read_text() for p in (ROOT / "patches/proposals" / name).glob("*.patch"))
        names = tuple(set(re.findall(r"^\+ *def (test_\w+)", added, flags=re.MULTILINE)))
        new = [(test, after) for test, before, after in differences if before == "not there"]
        own = [after for test, after in new if test.rpartition(".")[2].startswith(names)]
        counts = ", ".join(f"{own.count(r)} {r}" for r in sorted(set(own))) or "none"
        changed = f"{judged['points that changed']:,} of {judged['points']:,}"
        row = [code(name), built["build"]["files"], changed, len(judged["failures"]), len(differ)]
        rows.append([*row, counts])
    note = f"PyTorch {found['tree']['release']}, `--minimal`. {found['note']}"
    return table(*rows, right=(1, 2, 3, 4)) + "\n\n" + note


def is_usual(key, value):
    """What --minimal says of every tree."""
    return value == "0" and key.startswith(("USE_", "BUILD_TEST"))


def source_build_tests():
    """Upstream's tests in each state."""
    names, steps = zip(*states())
    rows = [["", *names]]
    for file in steps[0]["tests"]["files"]:
        found = [s["tests"]["files"][file]["counts"] for s in steps]
        words = [", ".join(f"{n} {result}" for result, n in counts.items()) for counts in found]
        rows.append([code(file), *words])
    crashes = [
        f"{code(test)} ended the process {times} of at most 3 times ({name}); then it was run again."
        for name, s in states()
        for file in s["tests"]["files"].values()
        for test, times in file["crashes"].items()
    ]
    return "\n\n".join([table(*rows), *crashes])


def source_build_times():
    """The gradients' time in each state."""
    stock, *others = SOURCE_BUILD["states"]["undone"]["times"]["microseconds"].items()
    _, rounds = stock
    keys = [key for key in rounds[0] if ";" in key]
    cases, columns = (list(dict.fromkeys(c)) for c in zip(*(k.rsplit("; ", 1) for k in keys)))
    rows = [["µs", *(f"{c} elements" for c in columns)]]
    for case in cases:
        row = [code(case)]
        for key in (f"{case}; {column}" for column in columns):
            cell = [f"{statistics.median(r[key] for r in rounds):,.0f}"]
            for _, mine in others:
                pairs = sorted(m[key] / s[key] for m, s in zip(mine, rounds, strict=True))
                cell.append(f"{statistics.median(pairs):.2f} ({pairs[0]:.2f}–{pairs[-1]:.2f})")
            row.append("; ".join(cell))
        rows.append(row)
    note = (
        f"Stock in µs, then {' and '.join(code(name) for name, _ in others)} divided by it. One thread; the fastest "
        f"call in a process; the median, and in brackets the least and the most, of {len(rounds)} rounds, in each of "
        "which every state has a process with its own libraries. The kernels are optimised, for one CPU "
        "capability without AVX; what calls them is not."
    )
    return table(*rows, right=range(1, len(columns) + 1)) + "\n\n" + note


TABLES = {
    "real_models": real_models,
    "proposals_built": proposals_built,
    "save_result": save_result,
    "fused_backward": lambda: patched_backward("fused-backward.json"),
    "joint_backward": lambda: patched_backward("joint-2.13.0.json"),
    "verified": verified,
    "source_build": source_build,
    "source_build_tests": source_build_tests,
    "source_build_times": source_build_times,
    "pin": pin,
    "first_pins": first_pins,
    "private_names": private_names,
    "private_headers": private_headers,
    "function_calls": function_calls,
    "variable": variable,
    "programs": programs,
    "program_libraries": program_libraries,
    "library_tests": library_tests,
    "names": names,
    "choices": choices,
    "memory": memory,
    "speed": speed,
    "speed_bars": speed_bars,
    "speed_used": speed_used,
    "speed_pairs": speed_pairs,
    "speed_times": speed_times,
    "speed_saved": speed_saved,
    "speed_model": speed_model,
    "cuda_instructions": cuda_instructions,
    "cuda_simulated": cuda_simulated,
    "audit_example": audit_example,
    "audit_cost": audit_cost,
    "frameworks": frameworks,
    "pgd": pgd,
    "dead_pixels": dead_pixels,
    "nan_guard": nan_guard,
    "parameter_at_its_bound": parameter_at_its_bound,
    "relu6_memory": relu6_memory,
    "numbers": numbers,
    "tensors": tensors,
    "migration": migration,
    "from_nothing": from_nothing,
    "pseudo_gradients": pseudo_gradients,
    "exact_examples": lambda: examples(EXACT),
    "pseudo_examples": lambda: examples(PSEUDO),
    **study.tables.TABLES,
}


def names_in(text):
    return re.findall(r"<!-- generated: (\w+) -->", text)


def fill(text):
    def filled(block):
        content = TABLES[block[2]]()
        return block[1] + (content and content + "\n") + block[3]

    return re.sub(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", filled, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(fill(path.read_text()))
