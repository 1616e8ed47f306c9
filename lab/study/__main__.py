"""python -m lab.study: every run that has no record yet, one after the other, on one thread."""

import argparse
import importlib
import time

import torch

from lab.study import records

# How many seeds each study has.
SEEDS = {"ties": 4, "relu0": 4, "qat": 5}


def main():
    parser = argparse.ArgumentParser(prog="python -m lab.study", description=__doc__)
    parser.add_argument("studies", nargs="*", default=list(SEEDS), help=", ".join(SEEDS))
    parser.add_argument("--seeds", type=int, nargs="+", help="several processes may share them out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for study in arguments.studies:
        carry_out(study, arguments.seeds or range(SEEDS[study]))


def module(study):
    return importlib.import_module(f"lab.study.{study}")


def carry_out(study, seeds):
    """The runs of `study` that have no record yet."""
    done = records.read(study)
    runs = list(module(study).runs(seeds))
    missing = [settings for settings in runs if records.settings(settings) not in done]
    print(f"{study}: {len(runs)} runs, {len(missing)} of them to do", flush=True)
    began = time.monotonic()
    for i, settings in enumerate(missing, 1):
        processor = time.process_time()
        measured = module(study).run(**settings)
        seconds = round(time.process_time() - processor, 2)
        records.add(
            study, {**settings, **measured, "cpu_seconds": seconds, "torch": torch.__version__}
        )
        left = (time.monotonic() - began) / i * (len(missing) - i)
        shown = ", ".join(str(value) for value in settings.values())
        print(
            f"[{i}/{len(missing)}] {shown}: {seconds:.1f} s, {left / 60:.0f} min left", flush=True
        )
    every = list(module(study).runs(range(SEEDS[study])))
    if {records.settings(run) for run in every} <= records.read(study).keys():
        records.tidy(study, every)


if __name__ == "__main__":
    main()
