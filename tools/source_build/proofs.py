"""What is asked of every state of the tree, once it is built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import processes
from building import LIBRARIES, Place
from series import ROOT, Refusal, all_series, attempt, files_of, named

HERE = Path(__file__).parent
FAMILY = ("clamp", "maximum", "minimum", "fmax", "fmin")
# Upstream's test files, with the names of tests that are chosen; all of them where there are none.
TESTS: dict[str, tuple[str, ...]] = {
    "test_autograd.py": (),
    "test_jit.py": (),
    "test_binary_ufuncs.py": (*FAMILY, "subgradient", "forward_ad_is_transpose"),
    "test_ops_gradients.py": FAMILY,
    "test_ops_fwd_gradients.py": FAMILY,
}


def child(place: Place, name: str, script: str, *arguments: str, **more: str) -> dict[str, Any]:
    """Runs a program of this folder on the torch that was built; the JSON that it leaves behind."""
    log = place.record.log(place.state, name)
    out = log.with_suffix(".json")
    out.unlink(missing_ok=True)
    # With CI set, upstream's runner reports in a form of its own; other variables choose among its tests.
    own = {k: v for k, v in os.environ.items() if k != "CI" and not k.startswith("PYTORCH_TEST")}
    with tempfile.TemporaryDirectory() as cache:
        # Compiled code of another state would have the gradients of that.
        environment = own | {"TORCHINDUCTOR_CACHE_DIR": cache} | more
        command = [sys.executable, str(HERE / script), str(out), *arguments]
        code = processes.run(command, log, env=environment, cwd=place.record.folder)
    if code or not out.exists():
        last = log.read_text(errors="replace").splitlines()[-5:]
        raise Refusal("\n".join([f"{script} ended with {code}:", *last, f"The log is {log}."]))
    result: dict[str, Any] = json.loads(out.read_text())
    return result


# ---- Gradients ---------------------------------------------------------------------------------------------


def gradients(place: Place) -> None:
    """The table of conventions, and what only a build can show."""

    def ask() -> dict[str, Any]:
        child(place, "gradients", "gradients.py", *["--quick"] * place.record.data["quick"])
        return {}

    place.step("gradients", ask)


def judge_gradients(last: Place) -> None:
    """Holds those of every state to stock and to the claim of its series: anew whenever it is asked, since
    it takes a second and the gradients are kept."""
    kept = {s: last.record.log(s, "gradients").with_suffix(".json") for s in last.record.asked}
    for state, own in kept.items():
        series = state if state in all_series() else ""
        found = child(last, "judged", "judged.py", str(own), str(kept["stock"]), series)
        last.record.states[state]["gradients"] |= found
    last.record.save()


# ---- Our package on it ---------------------------------------------------------------------------------------


def package(place: Place) -> None:
    """clampgrad installed beside this torch: compiled where it is for the release, portable otherwise."""

    def ask() -> dict[str, Any]:
        folder = place.record.folder / "package"
        if (
            place.state == "stock" or not folder.exists()
        ):  # what an earlier run left is of another torch
            shutil.rmtree(folder, ignore_errors=True)
            install(place, folder)
        return child(place, "package", "package.py", PYTHONPATH=str(folder))

    place.step("package", ask)


def install(place: Place, folder: Path) -> None:
    minor = tuple(map(int, place.tree.release.split(".")[:2]))
    portable = {"CLAMPGRAD_PORTABLE": "1"} if minor < (2, 11) else {}
    # From a copy: what setuptools leaves beside the sources is no business of theirs.
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        ignored = shutil.ignore_patterns(".*", "build", "out", "dist", "*.egg-info")
        shutil.copytree(ROOT, source, ignore=ignored)
        command = "-m pip install -q --no-build-isolation --no-deps --target"
        done = subprocess.run(
            [sys.executable, *command.split(), str(folder), str(source)],
            env=os.environ | portable,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise Refusal(f"clampgrad does not install beside this torch:\n{done.stderr[-2000:]}")


# ---- Upstream's tests ----------------------------------------------------------------------------------------


def upstream_tests(place: Place) -> None:
    """Every file in a process of its own, as many at a time as there are jobs."""

    def run(item: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
        return ran(place, place.tree.path / "test" / item[0], item[1], as_one_name(item[0]))

    def ask() -> dict[str, Any]:
        chosen = TESTS | brought(place)
        with ThreadPoolExecutor(int(place.environment["MAX_JOBS"])) as pool:
            try:
                return {"files": dict(zip(chosen, pool.map(run, chosen.items())))}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.end_all()
                raise

    place.step("tests", ask)


def brought(place: Place) -> dict[str, tuple[str, ...]]:
    """The test files that the series of this state adds to those."""
    if not place.series:
        return {}
    names = [n.removeprefix("test/") for n in test_files(named(place.series).patches)]
    there = [n for n in names if n not in TESTS and (place.tree.path / "test" / n).exists()]
    return {name: () for name in there}


def ran(place: Place, file: Path, names: Sequence[str], name: str) -> dict[str, Any]:
    """One file with upstream's own runner. A file that runs no test has failed, whatever it says."""
    chosen = [word for name in names for word in ("-k", name)]
    # test/functorch has no __init__.py and would hide functorch.
    found = child(place, name, "tests.py", str(file), *chosen, PYTHONPATH=str(place.tree.path))
    ran_at_all = {"ok", "failed", "expected failure"} & set(found["results"].values())
    if found["error"] or not ran_at_all:
        word = "ended early" if ran_at_all else "ran no test"
        raise Refusal(f"{file} {word}: {found['error']}")
    return found


def negative_controls(place: Place, series: Sequence[str]) -> None:
    """The tests that a series brings must fail on a PyTorch without it."""

    def ask() -> dict[str, Any]:
        found = {}
        for name in series:
            with tempfile.TemporaryDirectory() as scratch:
                done, _ = attempt(place.tree.path, named(name), False, Path(scratch))
                for file in test_files(done):
                    log = as_one_name("control", name, file.removeprefix("test/"))
                    run = ran(place, Path(scratch, file), new_tests(name), log)
                    found[f"{name}: {file}"] = run
        return {"files": found}

    place.step("controls", ask)


def as_one_name(*parts: str) -> str:
    """Of a log: two files may have one name in two folders."""
    return "-".join(parts).removesuffix(".py").replace("/", "-")


def test_files(patches: list[Path]) -> list[str]:
    names = {name for patch in patches for name in files_of(patch)}
    return sorted(n for n in names if n.startswith("test/") and n.endswith(".py"))


def new_tests(series: str) -> list[str]:
    """The names of the tests that the patches of a series add or change."""
    from tests import named_in

    return sorted({n for patch in named(series).patches for n in named_in(patch.read_text())})


# ---- Time -----------------------------------------------------------------------------------------------------


def times(place: Place, states: Sequence[str], rounds: int) -> None:
    """The gradients' time in each state: processes in turn, each with the libraries of its state."""

    def ask() -> dict[str, Any]:
        found: dict[str, list[dict[str, float]]] = {state: [] for state in states}
        for i in range(rounds):
            print(f"    round {i + 1} of {rounds}", flush=True)
            for state in states:
                kept = place.record.folder / "libraries" / state
                preloaded = [str(kept / n) for n in LIBRARIES]
                # What they need in turn lies beside those that were built.
                others = str(place.tree.path / "torch" / "lib")
                more = {"LD_PRELOAD": ":".join(preloaded), "LD_LIBRARY_PATH": others}
                found[state].append(child(place, "times", "times.py", **more))
        return {"microseconds": found}

    place.step("times", ask)
