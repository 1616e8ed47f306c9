"""The tables of README.md and docs/ that show what the commands here measured: records/."""

from itertools import product

import records
from benchmarks.bars import DTYPES, EVERY_DTYPE, blocks, size
from records import at_commit, code, made_on, minutes, table

SPEED = {
    name.removeprefix("cpu-"): records.read(name)
    for name in sorted(path.stem for path in records.FOLDER.glob("cpu-*.jsonl"))
}
USUAL = SPEED["2.13.0"]
VALUES = [records.read(f"values-{instructions}") for instructions in ("avx512", "avx2")]
GPUS = [records.read(path.stem) for path in sorted(records.FOLDER.glob("cuda-*.jsonl"))]
SPACE = "\N{NO-BREAK SPACE}"  # between a number and its unit, in cells that are narrow


def machine(results):
    return f"{made_on(results)}; `{results['command']}`."


def duration(value):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def with_spread(t):
    return f"{duration(t['median'])} ({duration(t['low'])} to {duration(t['high'])})"


# ---- One call ------------------------------------------------------------------------------------

RIVALS = [
    ("clamp", "torch.clamp"),
    ("clamp", "F.hardtanh"),
    ("clamp", "F.relu"),
    ("maximum", "torch.maximum"),
    ("clamp(x, lo, hi)", "torch.clamp"),
]


def rival_names(rivals):
    return [r + group.removeprefix("clamp") if "lo" in group else r for group, r in rivals]


def ratios(results, group, rival, dtype, malloc="default", threads=1, direction="both"):
    """{n: the rival's time over ours}."""
    key = dict(group=group, dtype=dtype, threads=threads, direction=direction, malloc=malloc)
    by_size = {}
    for row in blocks(results, **key):
        times, *_ = row["functions"].values()
        by_size[row["n"]] = row["functions"][rival]["median"] / times["median"]
    return by_size


def format_range(ratio_by_size):
    """The worst and the best, each with its size."""
    ends = dict.fromkeys(pick(ratio_by_size, key=ratio_by_size.get) for pick in (min, max))
    return " to ".join(f"{ratio_by_size[n]:.2g} ({size(n)})" for n in ends)


@table()
def speed():
    """What a program gets that sets nothing, the worst beside the best: one sentence."""

    def ends(*rival):
        of_each = (ratios(results, *rival, dtype) for results in SPEED.values() for dtype in DTYPES)
        all_ratios = [ratio for by_size in of_each for ratio in by_size.values()]
        return f"{min(all_ratios):.2g} to {max(all_ratios):.3g} times"

    clamp, hardtanh, relu, maximum = (ends(*rival) for rival in RIVALS[:4])
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
    # Whoever measures the present kernels takes "earlier" out, here and on the pages.
    on_gpus = [ratios(gpu, *RIVALS[0], dtype, "fixed") for gpu, dtype in product(GPUS, DTYPES)]
    large = [by_size[max(by_size)] for by_size in on_gpus]
    names = " and ".join(gpu["machine"]["gpu"] for gpu in GPUS)
    ((torch, _),) = {(gpu["torch"].partition("+")[0], gpu["commit"]) for gpu in GPUS}
    yield (
        f"On GPUs ({names}), `clampgrad.clamp` was {min(large):.2g} to {max(large):.3g} times as fast as `torch.clamp` on "
        f"{size(max(on_gpus[0]))} elements, with torch {torch}{at_commit(GPUS[0])}: an earlier version of the kernels. The "
        "present ones have not been measured."
    )


@table()
def speed_used():
    """What a program gets that sets nothing: the worst beside the best."""
    yield "machine", "dtype", *map(code, rival_names(RIVALS))
    for results in SPEED.values():
        m, torch = results["machine"], results["torch"].partition("+")[0]
        cpu = m["cpu"].replace("(R)", "").removesuffix(" Processor")
        for dtype in DTYPES:
            cells = (format_range(ratios(results, *rival, dtype)) for rival in RIVALS)
            yield f"{cpu}, {m['instruction_set']}, torch {torch}", dtype, *cells
    yield f"The number of elements is in brackets. {' '.join(map(machine, SPEED.values()))}"


@table(left=1)
def speed_times():
    """Medians and quartiles of the clamps, one thread."""
    key = dict(group="clamp", dtype="float32", threads=1, malloc="fixed", direction="both")
    columns = {
        row["n"]: row["functions"] for row in blocks(USUAL, **key) if row["n"] not in (2**17, 2**22)
    }
    yield "forward and backward", *(f"N = {size(n)}" for n in columns)
    for function in columns[1]:
        yield code(function), *(with_spread(times[function]) for times in columns.values())
    yield f"Median (lower to upper quartile), float32, one thread, malloc that recycles memory. {machine(USUAL)}"


# ---- Where no gradient is recorded, modules and other shapes: benchmarks/values.py --------------

VALUE_RIVALS = [
    ("clamp", "torch.clamp"),
    ("clamp", "torch.neg"),
    ("clamp_", "torch.clamp_"),
    ("maximum", "torch.maximum"),
    ("maximum", "torch.add"),
    ("fmax", "torch.fmax"),
    ("clamp(x, lo, hi)", "torch.clamp"),
]


def rows_of_values(columns, **keys):
    """A row per instruction set and dtype that was measured. Columns: {title: group and rival}."""
    for results in VALUES:
        for dtype in EVERY_DTYPE:
            by_column = [ratios(results, *of, dtype, "fixed", **keys) for of in columns]
            if all(by_column):
                yield results["machine"]["instruction_set"], dtype, *map(format_range, by_column)


def describe_values_records():
    first, second = VALUES
    return (
        f"{made_on(first)}; with ATEN_CPU_CAPABILITY=avx2{at_commit(second)}; "
        "`python -m benchmarks.values`."
    )


@table()
def values():
    """What a call takes that records nothing: the worst beside the best."""
    yield "threads", "instructions", "dtype", *map(code, rival_names(VALUE_RIVALS))
    for threads in (1, 2):
        for row in rows_of_values(VALUE_RIVALS, threads=threads, direction="values"):
            yield threads, *row
    yield f"The number of elements is in brackets. Memory is recycled. {describe_values_records()}"


@table()
def values_modules():
    """A converted module beside torch's."""
    modules = [("nn.ReLU6", "torch.nn"), ("nn.Hardtanh", "torch.nn")]
    yield "", "instructions", "dtype", *(code(group) for group, _ in modules)
    for what, direction in (("nothing recorded", "values"), ("forward in training", "forward")):
        for row in rows_of_values(modules, direction=direction):
            yield what, *row
    yield f"The time of PyTorch's module over that of the converted one, one thread. {describe_values_records()}"


@table()
def evaluated_models():
    """A model that evaluates in 16 bits, by setting."""
    record = records.read("evaluated-models")
    settings = list(dict.fromkeys(r["setting"] for r in record["rows"]))
    times = {(r["model"], r["setting"]): r["milliseconds"] for r in record["rows"]}
    yield "model", *map(code, settings)
    for model in dict.fromkeys(model for model, _ in times):
        cells = (times.get((model, setting)) for setting in settings)
        yield model, *("" if time is None else f"{time:.1f} ms" for time in cells)
    same = len({r["result"] for r in record["rows"]}) == 1
    yield (
        f"One forward without a gradient, one thread, channels_last: the fastest of a process, the median of {record['rounds']} "
        f"interleaved processes.{' All results are equal to the bit.' * same} Random weights, a batch of 8 images of "
        f"96 x 96. {libraries(record)}, {made_on(record)}; `python -m lab.real_models --evaluated`."
    )


@table()
def values_layouts():
    """Forward and backward of calls of other shapes, beside relu's."""
    columns = {
        "channels_last, a contiguous gradient": ("channels_last", "F.relu"),
        "every second element": ("a strided input", "F.relu"),
        "in place": ("clamp_", "F.relu_"),
        "in place, beside `F.hardtanh_`": ("clamp_", "F.hardtanh_"),
    }
    yield "instructions", "dtype", *columns
    yield from rows_of_values(list(columns.values()))
    yield (
        "The time of `F.relu` (`F.relu_`) over that of `clampgrad.clamp` (`clamp_`), forward and backward, one thread. "
        f"{describe_values_records()}"
    )


# ---- What is kept --------------------------------------------------------------------------------


@table()
def memory():
    """What is saved for backward: one sentence."""
    (row,) = blocks(USUAL, direction="kept", group="clamp", dtype="float32")
    bits, stock = (row["functions"][f]["saved_bits"] for f in ("clampgrad.clamp", "torch.clamp"))
    yield (
        f"In eager mode, `clampgrad.clamp` keeps **{bits:g} bit per element** for backward; `torch.clamp`, `F.hardtanh` and "
        f"`F.relu6` keep {stock:g} in float32."
    )


@table(left=2)
def speed_saved():
    """What the graph keeps."""
    yield "", "function", *DTYPES
    for wide, narrow in zip(*(blocks(USUAL, direction="kept", dtype=dtype) for dtype in DTYPES)):
        for function, kept in wide["functions"].items():
            cells = (f"{of['saved_bits']:g}" for of in (kept, narrow["functions"][function]))
            yield wide["group"], code(function), *cells
    yield f"Bits per element saved for backward. {machine(USUAL)}"


# ---- Models --------------------------------------------------------------------------------------


def models(kind):
    """The records of a kind, those of GPUs first: who trains on one looks for it."""
    paths = sorted(records.FOLDER.glob(f"{kind}*.jsonl"))
    model_records = (records.read(path.stem) for path in paths)
    return sorted(model_records, key=lambda record: "gpu" not in record["machine"])


def where(record):
    return f"{record['machine'].get('gpu', 'CPU')}, torch {record['torch']}"


def describe_times(of_cpus):
    """One sentence for all records that were measured alike: by which
    clock, how often, and on which processors."""
    machines = {}
    for record in of_cpus:
        alike = record.get("clock") == "process_time", record["rounds"]
        machine = f"torch {record['torch']} on {record['machine']['cpu']}{at_commit(record)}"
        machines.setdefault(alike, []).append(machine)
    for (of_processor, rounds), those in machines.items():
        time = "processor time" if of_processor else "time"
        several = f", the median of {rounds} interleaved processes" * (rounds > 1)
        yield f"A time is the {time} of the fastest step in a process{several} ({'; '.join(those)})."


def step(row, *digits):
    """Its time, what is kept for backward and, where it was measured, the peak."""
    time, saved = (
        f"{n:.{d}f}" for n, d in zip((row["milliseconds"], row["saved_bytes"] / 2**20), digits)
    )
    peak = f" ({row['peak_bytes'] / 2**20:.0f})" if "peak_bytes" in row else ""
    return f"{time}{SPACE}ms, {saved}{peak}{SPACE}MiB"


def libraries(record):
    return ", ".join(f"{name} {version}" for name, version in record["versions"].items())


@table()
def real_models():
    """The step of real models, and what autograd keeps for it, by setting."""
    model_records = models("real-models-")
    settings = list(dict.fromkeys(r["setting"] for r in model_records[0]["rows"]))
    yield "model", "on", *map(code, settings)
    all_same = True
    for record in model_records:
        cases = {(r["setting"], r["model"]): r for r in record["rows"]}
        for model in dict.fromkeys(r["model"] for r in record["rows"]):
            cells = []
            for setting in settings:
                here = cases[setting, model]
                # A GPU adds in any order, and its rows have none.
                same = here.get("gradients") == cases["stock", model].get("gradients")
                all_same &= same
                cells.append(step(here, 0, 1) + " *" * (not same))
            yield model, where(record), *cells
    of_gpus = [record for record in model_records if "gpu" in record["machine"]]
    if not of_gpus:
        yield "No such model has been recorded on a GPU yet; single calls [have](#cuda)."
    for record in of_gpus:
        yield (
            f"On {where(record)}: forward and backward, the fastest step of a process, the median of {record['rounds']}; "
            "what is kept and, in brackets, the most that is allocated in a step, beside the weights. "
            f"{libraries(record)}; `python -m lab.real_models --device cuda`{at_commit(record)}."
        )
    first, *_ = of_cpus = model_records[len(of_gpus) :]
    data = first.get("data", "random data, of the sizes in the script")
    has_peaks = any("peak_bytes" in r for record in of_cpus for r in record["rows"])
    yield (
        "On a CPU: forward and backward on one thread with the default malloc, and the memory that is kept"
        + "; in brackets, the most that a step allocates beside the weights" * has_peaks
        + f". {' '.join(describe_times(of_cpus))} Random weights, {data}. "
        f"{libraries(first)}; [the script](../lab/real_models.py). "
        + (
            "Under every pin all gradients equal stock's to the bit: in these models, none depends on the convention."
            if all_same
            else "*: some gradient differs from stock's in a bit; all others are equal."
        )
    )


@table()
def real_models_summary():
    """The ends of what the table above has of CPUs: two sentences."""
    model_records = [record for record in models("real-models-") if "gpu" not in record["machine"]]
    names, ratios = {}, {}
    for record in model_records:
        stock = {r["model"]: r for r in record["rows"] if r["setting"] == "stock"}
        for r in record["rows"]:
            of_stock = stock[r["model"]]
            names[r["model"].rpartition(",")[0]] = None
            parts = (r[what] / of_stock[what] for what in ("milliseconds", "saved_bytes"))
            ratios.setdefault(r["setting"].partition("(")[0], []).append((*parts,))

    def ends(setting, which):
        low, high = (pick(ratio[which] for ratio in ratios[setting]) for pick in (min, max))
        return f"{low:.2f} to {high:.2f}"

    releases = " and ".join(record["torch"].partition("+")[0] for record in model_records)
    yield (
        f"Under a pin, a training step takes {ends('pin', 0)} times as long as without one, and keeps {ends('pin', 1)} times "
        f"as much memory for backward. After `clampgrad.nn.convert`, it takes {ends('convert', 0)} times as long, and keeps "
        f"{ends('convert', 1)} times as much. These are the extremes of {len(names)} models ({'; '.join(names)}) in eager "
        f"mode, on one thread of a CPU, with torch {releases}."
    )


@table()
def learned_bounds():
    """The step of a model whose bounds are learned, beside stock's."""
    record = records.read("learned-bounds")
    stock, *_ = record["rows"]
    yield "", "time", "kept", "peak", "gradients"
    for r in record["rows"]:
        kept, peak = (f"{r[what] / 2**20:.0f}{SPACE}MiB" for what in ("saved_bytes", "peak_bytes"))
        same = r["gradients"] == stock["gradients"]
        ratio = f"{r['milliseconds'] / stock['milliseconds']:.2f}"
        yield (
            code(r["setting"]),
            ratio,
            kept,
            peak,
            "stock's" if same else "differ from stock's at ties",
        )
    yield (
        f"A step of {stock['model']}, {record['data']}: its processor time over stock's (the fastest of some steps, in one "
        "process per row, while other processes ran), the memory that it keeps for backward, and the most that it allocates "
        f"beside the weights. {libraries(record)}, {made_on(record)}; `python -m lab.real_models --models PACT`."
    )


@table()
def compiled_models():
    """The step of the beginnings of real models under torch.compile,
    and what it keeps, by setting."""
    model_records = models("compiled-models")
    settings = list(dict.fromkeys(r["setting"] for r in model_records[0]["rows"]))
    yield "model", "on", *map(code, settings)
    for record in model_records:
        cells = {(r["model"], r["setting"]): step(r, 1, 2) for r in record["rows"]}
        for model in dict.fromkeys(r["model"] for r in record["rows"]):
            yield model, where(record), *(cells[model, setting] for setting in settings)
    first = model_records[-1]
    yield (
        "Forward and backward under `torch.compile` on one thread, and the memory that is kept between them, weights included. "
        f"A time is that of the fastest step in a process, the median of {first['rounds']} interleaved processes. In the column "
        "`relu`, ReLU takes the place of ReLU6. The pin reaches the `torch.clamp` of T5, but not ReLU6, which `convert` replaces. "
        f"{libraries(first)}, {made_on(first)}; `python -m lab.real_models --compiled`."
    )


@table(left=0)
def audit_cost():
    record = records.read("audit")
    by_every = {}
    for r in record["rows"]:
        by_every.setdefault(r["every"], {})[r["activation"]] = r
    plain = by_every.pop("plain")
    yield "`every`", "added to a step, `relu6`", "`clamp`", "added to the peak of memory, `clamp`"
    for every, of in by_every.items():
        memory = of["clamp"]["peak_mib"] / plain["clamp"]["peak_mib"] - 1
        yield every, *(f"{of[a]['overhead']:.0%}" for a in ("relu6", "clamp")), f"{memory:.0%}"
    yield (
        f"A stack of MobileNetV2 blocks with {record['call_sites']} call sites of `relu6`, which a function mode sees, or of "
        f"`clamp(x, 0, 6)`, which kernels see; a batch of {record['batch']} images of {record['size']} x {record['size']}, one "
        f"thread, {1000 * plain['relu6']['seconds']:.0f} ms of processor time per step and {plain['clamp']['peak_mib']:.0f} MiB "
        f"without an audit, on a machine with other load. {made_on(record)}; `python -m benchmarks.overheads audit`."
    )


# ---- The pin, and a build -----------------------------------------------------------------------


@table(left=1)
def pin():
    """One row a way to pin, one column what is called."""
    record = records.read("pin")
    cases = {r.pop("case"): r for r in record["rows"]}
    yield "ns per call", *cases
    for way in next(iter(cases.values())):
        yield way, *(ways[way] for ways in cases.values())
    yield (
        f"Calls with Tensors of one element, float32, on one thread, {made_on(record)}; the fastest of many rounds. Entering and "
        f"leaving a block takes {record['a block, microseconds']} µs. `python -m benchmarks.overheads pin`."
    )


@table(left=3)
def portable():
    """One row a convention and what is called, one column a way to have it."""
    record = records.read("portable")
    yield "elements", "convention", "", *map(code, record["rows"][0]["microseconds"])
    for row in record["rows"]:
        times = (duration(time / 1e6) for time in row["microseconds"].values())
        yield size(row["n"]), f"`{row['gradient']}`", row["what"], *times
    yield (
        f"Between two numbers, float32, one thread, {made_on(record)}; the fastest of many rounds. `pinned` is `torch.clamp` "
        "under a pin. `python -m benchmarks.overheads portable`."
    )


@table()
def from_nothing():
    """How long the commands of README take."""
    r = records.read("from-nothing")
    took = {case["what"]: minutes(case["seconds"]) for case in r["rows"]}
    yield (
        f"In a fresh clone, on {r['machine']['cores']} cores of {r['machine']['cpu']}, `make demo` took "
        f"{took['installing torch']} to install torch {r['torch']} (your network decides) and {took['demo']} for "
        f"the rest, and `make test` then took {took['test']}."
    )


@table(left=3)
def cuda():
    """The times of the rivals over ours, on GPUs: the smallest and the largest size."""
    rivals = [*RIVALS, ("clamp", "torch.neg"), ("maximum", "torch.sub")]
    yield "GPU", "dtype", "elements", code("clampgrad.clamp"), *map(code, rival_names(rivals))
    for results, dtype in product(GPUS, DTYPES):
        ratios_by_size = [ratios(results, *rival, dtype, "fixed") for rival in rivals]
        rows = blocks(results, group="clamp", dtype=dtype, direction="both")
        for row in (rows[0], rows[-1]):
            n, seconds = row["n"], row["functions"]["clampgrad.clamp"]["median"]
            cells = (f"{of_rival[n]:.2f}" for of_rival in ratios_by_size)
            yield results["machine"]["gpu"], dtype, size(n), duration(seconds), *cells
    yield (
        "The time of `clampgrad.clamp`, forward and backward, and the times of others over that of our function of the "
        f"same name; `torch.neg` over that of `clamp`, `torch.sub` over that of `maximum`. torch {GPUS[0]['torch']}; "
        f"`{GPUS[0]['command']} --device cuda`{at_commit(GPUS[0])}."
    )
