"""Builds PyTorch from a checkout: as it is, with each series of patches, and as it was; and says what changed.

    python -m lab.build_pytorch CHECKOUT SERIES... [--minimal] [--check]

It runs in the environment of the build, which has what PyTorch's requirements.txt lists, and pytest. Every state is
built and checked alike: its gradients, at every point of the table of conventions, and upstream's tests, by name. A
refusal is one sentence, and changes nothing. Exit codes: 0 it holds, 1 something does not, 2 refused.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.series import ROOT, Refusal, Series, files_of, git, named, refused, release_of

FAMILY = ("clamp", "maximum", "minimum", "fmax", "fmin")
# Upstream's test files, with parts of the names of tests; all of them where there are none.
TESTS: dict[str, tuple[str, ...]] = {
    "test_autograd.py": (),
    "test_jit.py": (),
    "test_binary_ufuncs.py": (*FAMILY, "subgradient", "forward_ad_is_transpose"),
    "test_ops_gradients.py": FAMILY,
    "test_ops_fwd_gradients.py": FAMILY,
}
BUILD = [
    sys.executable,
    *["-m", "pip", "install", "-v", "--no-build-isolation", "--no-deps", "-e", "."],
]
# Optional, and no part of what a gradient is: left out by --minimal.
FEATURES = "CUDA ROCM XPU NCCL DISTRIBUTED MKLDNN FBGEMM XNNPACK NNPACK QNNPACK PYTORCH_QNNPACK KINETO ITT MIMALLOC"
Results = dict[str, str]  # name of a test -> how it ended
State = dict[str, Any]  # "gradients", "errors", "scripted", and "tests": {file: Results}


# ---- What is refused -----------------------------------------------------------------------------


def check(tree: Path, chosen: list[Series], minimal: bool) -> None:
    """The series first: nothing else matters where they are not for this tree."""
    release = release_of(tree)
    for series in chosen:
        if not series.fits(release):
            raise Refusal(f"{series.name} is for {series.span}, and {tree} is {release}.")
        put(tree, series, "--check")
    changed = git(tree, "status", "--porcelain", "--untracked-files=no").stdout.splitlines()
    if changed:
        raise Refusal(f"Commit or stash first: {', '.join(line[3:] for line in changed)}.")
    if problems := list(in_the_way(tree, minimal)):
        raise Refusal("; ".join(problems) + ".")


def in_the_way(tree: Path, minimal: bool) -> Iterator[str]:
    if re.search(r"\s", str(tree)):
        yield f"a space in {tree}, where PyTorch's build would split it: move the checkout"
    compiler = os.environ.get("CXX", "c++").split()[0]
    if missing := [name for name in ("cmake", "ninja", compiler) if not shutil.which(name)]:
        yield f"not on PATH: {', '.join(missing)}"
    if missing := [
        name for name in ("pytest", "yaml", "numpy", "expecttest") if not find_spec(name)
    ]:
        yield f"not installed: {', '.join(missing)} (requirements.txt of the checkout, and pytest)"
    listed = git(tree, "config", "-f", ".gitmodules", "--get-regexp", r"\.path$").stdout
    paths = [line.split(maxsplit=1)[1] for line in listed.splitlines()]
    if empty := [p for p in paths if not ((tree / p).is_dir() and any((tree / p).iterdir()))]:
        yield f"without files: {', '.join(empty)} (git submodule update --init --recursive)"
    if gone := [name for name in TESTS if not (tree / "test" / name).is_file()]:
        yield f"not in {tree}/test: {', '.join(gone)}"
    free, needed = shutil.disk_usage(tree).free >> 30, 6 if minimal else 12
    if free < needed:
        yield f"{free} GiB of disk are free, and a build may take {needed}"


def put(tree: Path, series: Series, *how: str) -> None:
    if error := refused(tree, series.patches, *how):
        raise Refusal(f"{series.name} does not apply to {tree}: {error}")


# ---- A state of the tree -------------------------------------------------------------------------


def environment(minimal: bool) -> dict[str, str]:
    """The environment of the build; variables that are set keep their values."""
    ours = {"BUILD_TEST": "0", "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
    if minimal:
        ours |= {f"USE_{feature}": "0" for feature in FEATURES.split()}
        include = ("CMAKE_PROJECT_TOP_LEVEL_INCLUDES", str(ROOT / "lab/minimal.cmake"))
        ours |= {"USE_PRECOMPILED_HEADERS": "1", include[0]: include[1]}
        ours["SKBUILD_CMAKE_DEFINE"] = "=".join(include)
    return {**ours, **os.environ}


def build(tree: Path, state: str, minimal: bool, log: Path) -> int:
    """The seconds it takes. Its version says which state it is."""
    public = (tree / "version.txt").read_text().strip().removesuffix("a0")
    version = f"{public}+{re.sub('[^a-z0-9]+', '.', state.rpartition('/')[2])}"
    ours = {"PYTORCH_BUILD_VERSION": version, "PYTORCH_BUILD_NUMBER": "1"}
    start = time.monotonic()
    with log.open("w") as file:
        how: dict[str, Any] = {"cwd": tree, "env": environment(minimal) | ours}
        if subprocess.run(BUILD, stdout=file, stderr=subprocess.STDOUT, **how).returncode:
            raise Refusal(f"The build of {state} failed, with {state} in the tree: {log}.")
    ask = [sys.executable, "-c", "import torch; print(torch.__version__, torch.__file__)"]
    found, _, where = subprocess.check_output(ask, cwd=log.parent, text=True).strip().partition(" ")
    if found != version or not Path(where).resolve().is_relative_to(tree):
        raise Refusal(f"{version} was built in {tree}, and {found} of {where} is imported.")
    return round(time.monotonic() - start)


def gradients() -> State:
    """What the torch that was built gives, asked in processes of their own."""
    from lab.verify.process import ask

    found, errors, _ = ask("table", "", "aot_eager")
    return {"gradients": found, "errors": errors, "scripted": ask("scripted")[0]}


def tests(tree: Path, file: str, names: tuple[str, ...], out: Path) -> Results:
    """The results of a test file of upstream's, run by pytest. If the process dies, that is one more result."""
    chosen = ["-k", " or ".join(names)] if names else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, *chosen]
    out.unlink(missing_ok=True)
    # test/functorch has no __init__.py and would hide functorch.
    env = {**os.environ, "PYTHONPATH": str(tree)}
    with out.with_suffix(".log").open("w") as log:
        how: dict[str, Any] = {"cwd": tree / "test", "env": env, "stdout": log}
        code = subprocess.run([*command, f"--junitxml={out}"], **how).returncode
    if not out.exists():
        return {"the process": f"ended with {code}"}
    found = {}
    for case in ElementTree.parse(out).iter("testcase"):
        ended = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = min(ended, default="passed")
    return found


# ---- What is compared ----------------------------------------------------------------------------


def of_tests(
    stock: dict[str, Results], mine: dict[str, Results], series: Series | None
) -> list[str]:
    """The tests that differ, except those that the series adds and that pass, or that it says fail."""
    wrong = []
    for file, results in mine.items():
        if "passed" not in results.values():
            wrong.append(f"{file}: no test passed ({dict(Counter(results.values()))})")
        before = stock.get(file, {})
        for name in sorted(before.keys() | results.keys()):
            was, now = before.get(name, "absent"), results.get(name, "absent")
            said = [p.partition(":") for p in series.fails] if series else []
            told = any(f == file and fnmatch.fnmatch(name.split("::")[-1], p) for f, _, p in said)
            new = series and was == "absent" and now in ("passed", "skipped")
            if was != now and not new and not (told and now == "failure"):
                wrong.append(f"{file}, {name}: {was}, {now}")
    return wrong


def of_gradients(stock: State, mine: State, series: Series | None) -> list[str]:
    """The gradients that are not as the series claims or, without one, as on stock."""
    from lab.verify.proof import changes, held

    changed = changes(stock["gradients"], mine["gradients"])
    missing = stock["gradients"].keys() - mine["gradients"].keys()
    raised = [f"{key}: {mine['errors'].get(key)}" for key in sorted(missing)]
    if series is None or series.claim.unchanged:
        return (
            raised
            + sorted(changed.keys() - missing)
            + [*changes(stock["scripted"], mine["scripted"])]
        )
    _, found = held(mine["gradients"], stock["gradients"], series.claim)
    return [*raised, *found] if changed else [*found, "no gradient changed"]


def row(name: str, stock: State, mine: State) -> dict[str, Any]:
    """The record of a state: counts."""
    from lab.verify.proof import changes

    differ = sum(n for n, _ in changes(stock["gradients"], mine["gradients"]).values())
    counts = {file: dict(sorted(Counter(r.values()).items())) for file, r in mine["tests"].items()}
    points = {"points": sum(map(len, mine["gradients"].values())), "points that changed": differ}
    return {"state": name, "seconds": mine["seconds"], **points, "tests": counts}


# ---- The run -------------------------------------------------------------------------------------


def run(tree: Path, chosen: list[Series], minimal: bool) -> tuple[list[dict], list[str]]:
    folder = tree / "build/clampgrad"
    folder.mkdir(parents=True, exist_ok=True)
    brought = {f for s in chosen for f in files_of(*s.patches) if re.match(r"test/.*\.py$", f)}
    files = {**{f.removeprefix("test/"): () for f in sorted(brought)}, **TESTS}
    rows, failures = [], []
    stock: State = {}
    for name, series in [("stock", None), *((s.name, s) for s in chosen), ("undone", None)]:
        print(f"==> {name}", flush=True)
        out = folder / name.replace("/", "-")
        if series:
            put(tree, series)
        try:
            seconds = build(tree, name, minimal, out.with_suffix(".build.log"))
            mine = gradients() | {"seconds": seconds}
            mine["tests"] = {
                file: tests(tree, file, names, Path(f"{out}-{file.replace('/', '-')}.xml"))
                for file, names in files.items()
                if (tree / "test" / file).is_file()
            }
        finally:
            if series:
                put(tree, series, "--reverse")
        stock = stock or mine
        wrong = of_gradients(stock, mine, series) if mine is not stock else []
        wrong += of_tests(stock["tests"], mine["tests"], series)
        rows.append({**row(name, stock, mine), "failures": len(wrong)})
        failures += [f"{name}: {what}" for what in wrong]
    return rows, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("series", nargs="*", help="for example v2.13.0/strict; each alone")
    parser.add_argument("--minimal", action="store_true", help="what the tests of autograd need")
    parser.add_argument("--check", action="store_true", help="only say what would be refused")
    options = parser.parse_args()
    try:
        tree, chosen = options.checkout.resolve(), [named(name) for name in options.series]
        check(tree, chosen, options.minimal)
        if options.check:
            return 0
        rows, failures = run(tree, chosen, options.minimal)
    except Refusal as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 2
    print(*rows, *failures, sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
