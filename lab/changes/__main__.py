"""Runs and compares: the package's docstring says how."""

import argparse
import json
import mmap
import os
import signal
import time
import traceback
import warnings
from pathlib import Path

CASE_SECONDS, PROGRESS_BYTES = 60, 4096


def main():
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # of torch alone, whatever is installed
    parser = argparse.ArgumentParser(
        prog="python -m lab.changes", description="Compare releases of PyTorch."
    )
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="evaluate every case on the installed release")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--only", default="", metavar="REGEX", help="the groups whose name matches")
    runs.add_argument("--pin", metavar="CONVENTION", help="run under a pin")
    runs.set_defaults(command=run_cases)
    compares = commands.add_parser("compare", help="print what differs between two runs")
    compares.add_argument("runs", nargs=2, type=Path)
    compares.add_argument("--all", action="store_true", help="rounding and messages, too")
    compares.add_argument("--record", action="store_true", help="put the counts into records/")
    compares.set_defaults(command=compare_runs)
    reproduces = commands.add_parser("record", help="put what the reproducers return into records/")
    reproduces.set_defaults(command=record_results)
    options = parser.parse_args()
    options.command(options)


def run_cases(options):
    import torch

    from lab.changes.cases import make_groups

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.pin:
        import clampgrad

        clampgrad.set_pin(options.pin)
    begun = time.time()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"torch": torch.__version__, "pin": options.pin}) + "\n")
    groups = make_groups(options.only)
    for name, make_cases in groups.items():
        run_group(name, make_cases, options.out)
    with options.out.open() as lines:
        count = sum(1 for _ in lines) - 1
    print(
        f"torch {torch.__version__}: {count:,} cases of {len(groups)} groups, {time.time() - begun:.0f} s"
    )


def compare_runs(options):
    from lab.changes.comparison import print_comparison

    counts = print_comparison(*options.runs, options.all)
    if options.record:
        from lab.changes.record import record_counts

        record_counts(counts)


def record_results(options):
    from lab.changes.record import record_results

    record_results()


def run_group(name, make_cases, out):
    """In a process of its own. Some operators crash, or hang, at values that they do not expect:
    the next process goes on behind such a case."""
    progress = mmap.mmap(
        -1, PROGRESS_BYTES
    )  # shared: how many cases were begun, the last one's name
    progress[:] = json.dumps([0, f"{name} | no case"]).encode().ljust(PROGRESS_BYTES)
    skipped_count, status = 0, None
    while status != 0:
        if not (child := os.fork()):
            evaluate_group(name, make_cases, out, skipped_count, progress)
        _, status = os.waitpid(child, 0)
        skipped_count, case = json.loads(progress[:])
        if status:
            append(out, case, {"value": f"error: the process ended with {status}"})


def evaluate_group(name, make_cases, out, skipped_count, progress):
    from lab.changes.results import evaluate

    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where MKL complains of NaN
        names = set()
        for i, case in enumerate(make_cases()):
            if i < skipped_count or case.name in names:
                continue
            names.add(case.name)
            progress[:] = json.dumps([i + 1, case.name]).encode().ljust(PROGRESS_BYTES)
            signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)  # of computing, not of waiting
            append(out, case.name, evaluate(*case[1:]))
    except BaseException:
        append(out, f"{name} | not made", {"value": "error: " + traceback.format_exc()[-300:]})
    os._exit(0)


def append(out, case, parts):
    with out.open("a") as lines:
        lines.write(json.dumps({"case": case, "parts": parts}) + "\n")


if __name__ == "__main__":
    main()
