"""Times a training step of T5 in float16 with stock's backward of
clamp and with that of a proposal:

    python -m lab.upstream_t5 --out records/tensor-bounds-t5.jsonl

T5 clamps what has 16 bits after every block, with bounds that have no dimension and 32 bits. Random
weights of a small configuration, eager, on the CPU. Both sides are compiled as `verify` compiles
them, and run in processes of their own, in turn. Needs transformers.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import records
from lab.patched import SIDES, compiled, libraries_in

SERIES = "proposals/tensor-bounds"
CONFIG = {
    "vocab_size": 512,
    "d_model": 256,
    "d_kv": 32,
    "d_ff": 512,
    "num_layers": 2,
    "num_heads": 8,
}
BATCH, LENGTH = 4, 128


def measured(library, steps):
    """The seconds of the best step, those of the backward of its clamps, how many there
    are, and the peak in MiB. Seconds of this process on a processor, which other
    processes do not change much."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.ops.load_library(library)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(**CONFIG, dropout_rate=0)).half()
    ids = torch.randint(CONFIG["vocab_size"], (BATCH, LENGTH))
    clamp, spent = torch.clamp, []

    def timed(*arguments, **keywords):
        y = clamp(*arguments, **keywords)
        assert y.grad_fn.name().startswith("ProvedClampBackward")
        y.grad_fn.register_prehook(lambda _: spent.append(-time.process_time()))
        y.grad_fn.register_hook(lambda *_: spent.append(time.process_time()))
        return y

    torch.clamp = timed
    steps_took, clamps = [], []
    for _ in range(steps):
        spent.clear()
        start = time.process_time()
        model(input_ids=ids, decoder_input_ids=ids, labels=ids).loss.backward()
        steps_took.append(time.process_time() - start)
        clamps.append(sum(spent))
        model.zero_grad()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    best = {"step": min(steps_took), "clamps": min(clamps), "peak": peak}
    return best | {"calls": len(spent) // 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--out", type=Path, required=True, help="FILE.jsonl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="in each process")
    parser.add_argument(
        "--libraries", type=Path, help="a folder with stock/ and patched/, compiled before"
    )
    parser.add_argument("--note", default="", help="what a reader of the times must know")
    options = parser.parse_args()
    found = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as scratch:
        paths = libraries_in(options.libraries) or compiled(SERIES, Path(scratch))
        # What is freed goes back to the system, so that the peak is that of what is in use.
        env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
        for _ in range(options.rounds):
            for side, path in paths.items():
                command = [
                    sys.executable,
                    "-m",
                    "lab.upstream_t5",
                    "--library",
                    str(path),
                    str(options.steps),
                ]
                *_, answer = subprocess.check_output(command, env=env).splitlines()
                found[side].append(json.loads(answer))  # transformers may print before it
    rows = [
        {"what": what, **{side: statistics.median(r[what] for r in found[side]) for side in SIDES}}
        for what in ("step", "clamps", "peak")
    ]
    header = {"series": SERIES, "config": CONFIG, "batch": BATCH, "length": LENGTH}
    header |= {
        "calls": found["stock"][0]["calls"],
        "processes": options.rounds,
        "note": options.note,
    }
    records.write(options.out, rows, **records.here(), **header)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--library"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
