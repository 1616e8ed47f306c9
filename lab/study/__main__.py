"""python -m lab.study: every run that has no record yet, one after the other, on one thread."""

import argparse
import importlib
import time

import torch

import records
from lab.study import results

# How many seeds each study has.
SEEDS = {"ties": 4, "relu0": 4, "qat": 5}


def module(study):
    return importlib.import_module(f"lab.study.{study}")


def carry_out(study):
    """The runs that have no record yet. What is recorded is in the order of the runs, and of no others."""
    runs, rows = list(module(study).runs(range(SEEDS[study]))), results.read(study)
    missing = [run for run in runs if not results.select(rows, **run)]
    print(f"{study}: {len(runs)} runs, {len(missing)} of them to do", flush=True)
    for i, run in enumerate(missing, 1):
        start = time.process_time()
        measured = module(study).run(**run)
        seconds = round(time.process_time() - start, 2)
        rows.append({**run, **measured, "cpu_seconds": seconds, "torch": torch.__version__})
        rows = [row for each in runs for row in results.select(rows, **each)]
        records.write(results.path(study), rows, digits=None)
        shown = ", ".join(map(str, run.values()))
        print(f"[{i}/{len(missing)}] {shown}: {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.study", description=__doc__)
    parser.add_argument("studies", nargs="*", default=list(SEEDS), help=", ".join(SEEDS))
    torch.set_num_threads(1)
    for study in parser.parse_args().studies:
        carry_out(study)
