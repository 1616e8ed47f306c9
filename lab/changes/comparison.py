"""What differs between two runs."""

import base64
import json
import zlib
from collections import Counter

import numpy as np

# Below these, a difference is rounding: of the largest value, and of the value itself.
TOLERANCES = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 4e-2, "float16": 4e-3}
TOLERANCES |= {"complex64": 2e-4, "complex128": 1e-9}
# What a comparison counts and does not print.
SMALL_KINDS = ("rounding", "zero's sign", "message")


def print_comparison(first_path, second_path, prints_all):
    """Prints what differs; returns the two releases and how many cases are equal."""
    (first_header, first), (second_header, second) = read_run(first_path), read_run(second_path)
    counts = Counter(cases=len(first.keys() & second.keys()))
    for name in sorted(first.keys() & second.keys()):
        differences = compare_cases(first[name], second[name])
        large = {part: d for part, d in differences.items() if d[0] not in SMALL_KINDS}
        counts["differ" if large else "rounding" if differences else "equal"] += 1
        for part, (kind, where) in (differences if prints_all else large).items():
            print(f"{name} | {part} | {kind} | {where}")
    for path, run, other in ((first_path, first, second), (second_path, second, first)):
        lone = Counter(name.partition(" | ")[0] for name in run.keys() - other.keys())
        print(f"only in {path}: {lone.total():,} cases")
        for group, number in sorted(lone.items()):
            print(f"    {group}: {number}")
    print(
        f"{counts['cases']:,} cases in both: {counts['equal']:,} equal to the bit, "
        f"{counts['rounding']:,} but for rounding, {counts['differ']:,} differ"
    )
    return {"first": name_run(first_header), "second": name_run(second_header), **counts}


def name_run(header):
    """The release, and its pin if there was one."""
    release = header["torch"].partition("+")[0]
    return f"{release}, pinned to {header['pin']}" if header["pin"] else release


def read_run(path):
    with path.open() as lines:
        header, *cases = map(json.loads, lines)
        return header, {case["case"]: case["parts"] for case in cases}


def compare_cases(first, second):
    """{part: (kind of difference, where)}; a kind is "rounding", "zero's sign" or worse."""
    differences = {}
    for part in first | second:
        a, b = first.get(part), second.get(part)
        if a != b:
            differences[part] = compare_parts(a, b)
    return differences


def compare_parts(a, b):
    if isinstance(a, str) and isinstance(b, str):
        return "message", f"{a} | {b}"
    if isinstance(a, str) or isinstance(b, str):
        return "raises", a if isinstance(a, str) else f"| {b}"
    if a is None or b is None:
        return "absent", "before" if a is None else "after"
    if len(a) != len(b) or not all(isinstance(x, list | None) for x in a + b):
        return "structure", f"{a} | {b}"[:200]
    differences = [(*compare_tensors(x, y), i) for i, (x, y) in enumerate(zip(a, b)) if x != y]
    kinds = ["rounding", "zero's sign"]
    kind, where, i = max(differences, key=lambda difference: difference[0] not in kinds)
    return kind, f"output {i}: {where}" if where else ""


def compare_tensors(a, b):
    if a is None or b is None:
        return "absent", "before" if a is None else "after"
    if a[0] == "python" or b[0] == "python" or a[:2] != b[:2]:
        return "structure", f"{a[:2]} | {b[:2]}"
    x, y = decode(a), decode(b)
    if x.dtype.kind != "f":
        return "integer", show_element(x, y, x != y)
    both_nan, finite = np.isnan(x) & np.isnan(y), np.isfinite(x) & np.isfinite(y)
    equal = both_nan | (x == y)
    if equal.all():
        return "zero's sign", ""
    if (~finite & ~equal).any():
        return "not finite", show_element(x, y, ~finite & ~equal)
    with np.errstate(all="ignore"):
        tolerance, distance = TOLERANCES[a[0]], np.abs(x - y)
        scale = np.abs(x[finite]).max(initial=0)
        far = ~equal & (distance > tolerance * np.maximum(np.abs(x), np.abs(y)))
    far_from_all = far & (distance > tolerance * scale)
    if far_from_all.any():
        return "number", show_element(x, y, far_from_all)
    return ("small number", show_element(x, y, far)) if far.any() else ("rounding", "")


def show_element(x, y, where):
    i = int(np.flatnonzero(where)[0])
    return f"{x[i]} | {y[i]} at {i}, {int(where.sum())} of {x.size}"


def decode(encoded):
    dtype, shape, text = encoded
    stored = "float32" if dtype in ("bfloat16", "float16") else dtype
    array = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=stored)
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)  # real and imaginary parts in turn
    return array.astype(np.float64) if array.dtype.kind == "f" else array
