"""The tables of docs/upstream/ and patches/: what a build of PyTorch and `verify`
found, and what patches cost."""

from collections import Counter

import records
from records import code, made_on, minutes, table


def called(state):
    return state if state in ("stock", "undone") else code(state)


@table(left=1)
def source_build():
    """What was built, and which gradients it has."""
    head = ["", "build", "files compiled", "`clamp(x, 0, 1)` at 0", "numbers", "Tensors"]
    yield *head, "points that differ from stock", "failures"
    record = records.read("source-build")
    for r in record["rows"]:
        row = [called(r["state"]), minutes(r["seconds"]), r["files compiled"]]
        row += [f"{r['clamp(x, 0, 1) at 0']:g}"]
        row += [", ".join(r[kind]) or "of none" for kind in ("numbers", "tensors")]
        differ = f"{r['points that changed']:,} of {r['points']:,}"
        yield *row, f"{differ} ({r['as verify counts them']:,})", r["failures"]
    flags = ", ".join(f"`{key}={value}`" for key, value in record["flags"].items())
    yield (
        f"PyTorch {record['release']}, {record['jobs']} jobs on {record['cores']} cores of {record['processor']}, Python "
        f"{record['python']}; {record['seconds'] / 60:.0f} minutes in all. No optional features, and {flags}. {record['note']}"
    )


@table()
def source_build_tests():
    """Upstream's tests in each state."""
    states = records.read("source-build")["rows"]
    yield "", *(called(r["state"]) for r in states)
    for file in states[0]["tests"]:
        counts = (r["tests"][file].items() for r in states)
        yield code(file), *(", ".join(f"{n} {how}" for how, n in of) for of in counts)


@table(right=(3, 4))
def verified():
    """What `verify` found, release by release."""
    yield "torch", "series", "gradients", "cells that hold", "left out", "run on"
    for r in records.read("verified")["rows"]:
        counts = f"{r['cells']:,}", f"{r['left out']:,}"
        yield r["torch"], code(r["series"]), r["convention"], *counts, r["date"]


# ---- What patches cost ---------------------------------------------------------------------------


def of_elements(record):
    text = f"{record['n']:,} elements of {record['dtype']}, one thread, {made_on(record)}. {record['note']}"
    return text.strip()


@table(left=1)
def in_place_hardtanh():
    """What stock's in-place hardtanh keeps and costs beside the other."""
    record = records.read("in-place-hardtanh")
    yield "", "bytes per element", "ms, forward and backward"
    for r in record["rows"]:
        yield code(r["case"]), f"{r['bytes']:g}", f"{r['ms']:.2f}"
    yield of_elements(record)


def busy(record):
    """In a few words what the note of a record says at length."""
    return record["note"] and "Processor time on a busy machine."


def costs(name, heading, about, yardstick=None):
    """Stock → patched, and the ratio: to stock or, if a case is the yardstick, to
    what that takes when patched."""
    record, cases = records.read(name), {}
    for row in record["rows"]:
        case, _, column = row["case"].rpartition("; ")
        cases.setdefault(case, {})[column] = row
    first = next(iter(cases.values()))
    yield heading, *(f"{c} {'element' if c.endswith(' 1') else 'elements'}" for c in first)
    for case, columns in cases.items():
        cells = []
        for column, r in columns.items():
            ratio = r["patched"] / (
                cases[yardstick][column]["patched"] if yardstick else r["stock"]
            )
            cells.append(f"{r['stock']:,.0f} → {r['patched']:,.0f} ({ratio:.2f})")
        yield code(case), *cells
    yield (
        f"{about.format(**record)} One thread, {made_on(record)}; the fastest call in a process, the median of {record['processes']} "
        f"interleaved rounds of processes. {busy(record)}"
    ).strip()


@table(left=1)
def joint_backward():
    """The backward of clamp and its family, stock's and a series's, and beside hardtanh's."""
    about = (
        "Stock → `{series}`, and in brackets the latter divided by `hardtanh(x, 0, 1)`, which has an operator of "
        "its own in both. Backward alone; forward mode with its forward."
    )
    return costs("joint-2.13.0", "µs", about, yardstick="hardtanh(x, 0, 1)")


@table(left=1)
def tensor_bounds():
    """The backward of clamp with Tensor bounds, of maximum and its relatives, with kernels that
    were drafted and withdrawn."""
    return costs("tensor-bounds", "µs, backward", "Stock → the draft, and the ratio.")


@table(left=1)
def tensor_bounds_t5():
    """The clamps in a training step of T5. Between steps there is more
    noise than what the clamps take."""
    record = records.read("tensor-bounds-t5")
    yield "", "stock", "the draft", "ratio"
    labels = {
        "clamps": (f"the backward of its {record['calls']} clamps", 1e3, "ms"),
        "peak": ("peak of the process", 1, "MiB"),
    }
    for r in (r for r in record["rows"] if r["what"] in labels):
        name, scale, unit = labels[r["what"]]
        yield (
            f"{name}, {unit}",
            *(f"{scale * r[s]:,.1f}" for s in ("stock", "patched")),
            f"{r['patched'] / r['stock']:.2f}",
        )
    size = ", ".join(f"{key} {value}" for key, value in record["config"].items())
    yield (
        f"T5 in float16, eager, random weights ({size}; {record['batch']} times {record['length']} tokens). One thread, "
        f"{made_on(record)}; the best step of a process, the median of {record['processes']} processes of each side, in turn. "
        f"{busy(record)}"
    ).strip()


# ---- torch's vectors of 16 bits ------------------------------------------------------------------


def differing(dtype, *instructions):
    """How many results of at::vec a patch changes, denormals flushed or not."""
    record = records.read("vec16-proof")
    counts = {}
    for r in record["rows"]:
        if r["dtype"] == dtype and r["side"].startswith("patched"):
            of = counts.setdefault((r["function"], r["side"].split()[1]), Counter())
            of.update({key: r[key] for key in ("compared", "numbers", "payloads")})
    columns = [f"{what} that differ, {i}" for i in instructions for what in ("numbers", "payloads")]
    yield "", "results compared", *columns
    for name in dict.fromkeys(function for function, _ in counts):
        of = [counts[name, i] for i in instructions]
        assert len({c["compared"] for c in of}) == 1, "the comparison is not whole"
        cells = (f"{c[what]:,}" for c in of for what in ("numbers", "payloads"))
        yield code(name), f"{of[0]['compared']:,}", *cells
    clamps = [r for r in record["rows"] if r["dtype"] == dtype and r["function"] == "clamp"]
    off, on = (
        {round((r["compared"] / 2**16) ** 0.5) for r in clamps if r["flush"] == flush}
        for flush in (False, True)
    )
    bounds = f"{max(off)} bounds" + (f" ({min(on)} with it on)" if on != off else "")
    yield (
        f"All pairs of operands; of `clamp`, all numbers between all pairs of {bounds}. Each with `set_flush_denormal` off "
        "and on, beside the AVX2 code as it is, in the loop of `cpu_kernel_vec`. A payload differs where both results are "
        f"NaN. Headers of torch {record['torch']}."
    )


def loops_of(dtype, *instructions, sizes=None):
    """Torch's loops with and without a patch to at::vec, of these numbers of elements or all."""
    record, loops = records.read("vec16-times"), {}
    for r in record["rows"]:
        has_size = not sizes or r["n"] in sizes
        if r["dtype"] == dtype and r["instructions"] in instructions and has_size:
            before, after = (
                f"{µs:,.0f}" if µs > 99 else f"{µs:.2g}" for µs in (r["stock"], r["patched"])
            )
            cell = f"{before} → {after} ({r['stock'] / r['patched']:.1f})"
            loops.setdefault(r["loop"], {})[r["instructions"], r["n"]] = cell
    columns = next(iter(loops.values()))
    yield "µs", *(f"{i}, 2^{n.bit_length() - 1} elements" for i, n in columns)
    for name, cells in loops.items():
        yield code(name), *cells.values()
    yield (
        "Before → after, and how many times as fast: the loops of `cpu_kernel_vec` and `binary_kernel_reduce_vec`, compiled "
        f"with the headers of torch {record['torch']}. One thread, {record['machine']['cpu']}; both sides in turn in one "
        f"process, the median of {record['rounds']} rounds."
    )


@table(left=1)
def vec16_bfloat16():
    return differing("bfloat16", "AVX2", "AVX512")


@table(left=1)
def vec16_half():
    return differing("float16", "AVX2")


@table(left=1)
def vec16_bfloat16_times():
    return loops_of("bfloat16", "AVX2", "AVX512")


@table(left=1)
def vec16_bfloat16_times_of_two_sizes():
    return loops_of("bfloat16", "AVX2", "AVX512", sizes=(2**12, 2**20))


@table(left=1)
def vec16_half_times():
    return loops_of("float16", "AVX2")
