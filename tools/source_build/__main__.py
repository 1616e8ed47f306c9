"""Builds PyTorch from a checkout as it is, with each series, and as it was; see ../build_pytorch.sh.

Every state of the tree is built and proved alike: its gradients, upstream's tests, our package on it.
A step that is done is not done again, so an interrupted run goes on. All that a run finds stands in
CHECKOUT/build/clampgrad/record.json, the logs beside it.
"""

import argparse
import fcntl
import json
import sys
import traceback
from pathlib import Path

import flags
import processes
import proofs
import ready
import report
import timing
import upstream
import verdict
from building import Place
from outlook import outlook
from record import Record, folder_of
from series import Refusal, Tree

STOCK, UNDONE = "stock", "undone"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/build_pytorch.sh",
        description="Build PyTorch before and after each series of patches, and prove what changed.",
        epilog="Exit codes: 0 what was asked holds, 1 something does not, 2 refused or broken off, 130 "
        "interrupted. Variables of PyTorch's "
        "own build (USE_CUDA, CC, CXX, MAX_JOBS, CMAKE_ARGS ...) count as they do there.",
    )
    parser.add_argument("checkout", type=Path, help="a checkout of PyTorch, with its submodules")
    parser.add_argument("series", nargs="+", help="for example v2.13.0/strict; applied in turn")
    parser.add_argument(
        "--minimal",
        action="store_true",
        help="the least that the tests of autograd need: no optional features, no optimisation but "
        "of the CPU kernels, of these one CPU capability, large precompiled headers, and Clang and "
        "lld if they are there",
    )
    parser.add_argument(
        "--any-release", action="store_true", help="for a release it is not made for"
    )
    parser.add_argument("--check", action="store_true", help="only check whether it can begin")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out Inductor and compiled autograd: minutes each",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of timing; 0 for none (default: 3)")
    parser.add_argument("--out", type=Path, help="where to write the record, shortened, for others")
    parser.add_argument("--note", default="", help="what a reader of that must know")
    return parser.parse_args()


def run(options: argparse.Namespace) -> int:
    if sys.platform != "linux":
        raise Refusal(f"this is {sys.platform}, and the script is for Linux")
    tree = Tree(options.checkout.resolve(), tuple(options.series), options.any_release)
    lock(tree)  # before anything is read that another run may be writing
    environment = flags.environment(options.minimal)
    record = Record.of(tree, options.series, flags.flags(environment), options.quick)
    ready.check(tree, options.series, environment, begun=record.has_begun)
    print(outlook(record, environment, options.minimal), flush=True)
    if options.check:
        return 0

    for state in (STOCK, *options.series, UNDONE):
        series = None if state in (STOCK, UNDONE) else state
        place = Place(tree, record, environment, state, series)
        proofs.gradients(place)
        proofs.package(place)
        upstream.tests(place, options.series)
        if state == STOCK:
            upstream.controls(place, options.series)
        if options.rounds and state != UNDONE:
            timing.keep(place)
    place.arrive()  # the tree is left as it was
    if options.rounds:
        timing.times(place, (STOCK, *options.series), options.rounds)

    proofs.judge_gradients(place)
    failures = verdict.judge(record, options.series)
    print(report.told(record, failures))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        published = report.published(record) | {"note": options.note}
        options.out.write_text(json.dumps(published, indent=1) + "\n")
    return 1 if failures else 0


def lock(tree: Tree) -> None:
    """Until this process ends: two runs would change one tree."""
    global locked
    folder = folder_of(tree)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        locked = (folder / "lock").open("w")
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refusal(f"another run is at work in {folder}") from None
    except OSError as error:
        raise Refusal(f"{folder} cannot be written and locked: {error}") from None


def main() -> int:
    processes.interrupt_on_signals()
    try:
        return run(arguments())
    except Refusal as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run it again, and it goes on from here", file=sys.stderr)
        return 130
    except Exception:
        traceback.print_exc()
        print("broken off: an error of this script", file=sys.stderr)
        return 2  # 1 says that something does not hold


if __name__ == "__main__":
    sys.exit(main())
