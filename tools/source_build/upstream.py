"""Upstream's tests on the torch that was built; and those that a series brings, on one without it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import processes
from brought import new_tests, test_files
from building import Place
from proofs import child
from series import Refusal, attempt, files_added, named

FAMILY = ("clamp", "maximum", "minimum", "fmax", "fmin")
# Upstream's test files, with the names of tests that are chosen; all of them where there are none.
TESTS: dict[str, tuple[str, ...]] = {
    "test_autograd.py": (),
    "test_jit.py": (),
    "test_binary_ufuncs.py": (*FAMILY, "subgradient", "forward_ad_is_transpose"),
    "test_ops_gradients.py": FAMILY,
    "test_ops_fwd_gradients.py": FAMILY,
}


def tests(place: Place, series: Sequence[str]) -> None:
    """Runs every file in a process of its own, unless it is done: as many at a time as there are jobs, but one
    where the tests share the memory of a GPU."""
    new = [test for name in series for test in new_tests(name)]
    chosen = {f: (*names, *new) if names else () for f, names in TESTS.items()}
    chosen |= others(place, series)
    done = place.record.found(place.state, "tests") or {"files": chosen}
    done["files"] = {file: run for file, run in done["files"].items() if file in chosen}
    if chosen.keys() - done["files"].keys():  # of a series that was not asked before
        del done["seconds"]

    def run(file: str) -> dict[str, Any]:
        found: dict[str, Any] = place.record.part(
            place.state, "tests", file, lambda: of_file(place, file, chosen[file])
        )
        return found

    def ask() -> dict[str, Any]:
        jobs = 1 if for_gpu(place.record.data["torch"]) else int(place.environment["MAX_JOBS"])
        with ThreadPoolExecutor(jobs) as pool:
            try:
                files = dict(zip(chosen, pool.map(run, chosen)))
                return {"files": files, "not in the tree": absent(place, series)}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.end_all()
                raise

    place.step("tests", ask)


def for_gpu(torch: dict[str, Any]) -> bool:
    """Whether a torch was built for GPUs, by the names of its libraries."""
    return any(re.search("libtorch_(cuda|hip|xpu)", library) for library in torch["libraries"])


def touched(place: Place, series: Sequence[str]) -> tuple[list[str], set[str]]:
    """The test files that any of the series touches, but for those that another adds; and all that are added."""
    patches = [patch for name in series for patch in named(name).patches]
    new = {file for patch in patches for file in files_added(patch)}
    own = set(test_files(named(place.series).patches)) if place.series else set()
    return [f for f in test_files(patches) if f in own or f not in new], new


def others(place: Place, series: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The further test files that any of the series touches, as far as this state has them."""
    files, new = touched(place, series)
    names = [f.removeprefix("test/") for f in files if f in new or (place.tree.path / f).is_file()]
    return {name: () for name in names if name not in TESTS}


def absent(place: Place, series: Sequence[str]) -> list[str]:
    return [f for f in touched(place, series)[0] if not (place.tree.path / f).is_file()]


def of_file(place: Place, file: str, names: Sequence[str]) -> dict[str, Any]:
    """A file that runs no test has failed, whatever its exit code."""
    found = ran(place, place.tree.path / "test" / file, names, as_one_name(file))
    ran_at_all = {"ok", "failed", "expected failure"} & set(found["results"].values())
    if found["error"] or not ran_at_all:
        word = "ended early" if ran_at_all else "ran no test"
        raise Refusal(f"test/{file} {word}: {found['error']}")
    if place.state == "stock" and "ok" not in found["results"].values():
        raise Refusal(f"none of test/{file} passes on stock, so it would show nothing of a patch")
    return found


def ran(place: Place, file: Path, names: Sequence[str], name: str) -> dict[str, Any]:
    """Runs one file with upstream's own runner."""
    chosen = [word for name in names for word in ("-k", name)]
    # test/functorch has no __init__.py and would hide functorch.
    return child(place, name, "tests.py", str(file), *chosen, PYTHONPATH=str(place.tree.path))


def controls(place: Place, series: Sequence[str]) -> None:
    """The tests that a series brings, on a PyTorch without it. Those of a series that changes no gradient
    say nothing there: they ask for the same, or for operators that are not there."""

    def ask() -> dict[str, Any]:
        found = {}
        left_out = {}
        for name in series:
            with tempfile.TemporaryDirectory() as scratch:
                done, skipped = attempt(place.tree.path, named(name), False, Path(scratch))
                left_out[name] = [patch.name for patch in skipped]
                for file in test_files(done) if not named(name).claim.unchanged else []:
                    log = as_one_name("control", name, file.removeprefix("test/"))
                    run = ran(place, Path(scratch, file), new_tests(name), log)
                    found[f"{name}: {file}"] = run
        return {"files": found, "skipped": left_out}

    place.step("controls", ask)


def as_one_name(*parts: str) -> str:
    """The name of a log. Two files of one name may lie in two folders."""
    return "-".join(parts).removesuffix(".py").replace("/", "-")
