"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python -m lab.real_models --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors; the
MobileNets of timm have relu6, hardswish and hardsigmoid. All weights are random, as is the data. Every setting
runs in a process of its own, in interleaved rounds; one thread. The digests say where all gradients of the last
step are those of stock, to the bit. Needs transformers and timm.
"""

import argparse
import hashlib
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext

import torch

import clampgrad
import records
from benchmarks.memory import saved_bytes

SETTINGS = ("stock", 'pin("installed")', 'pin("inclusive")', 'pin("joint")', "convert")
STEPS = 5
DATA = "a batch of 4 sequences of 64 tokens, or of 8 images of 96 x 96"


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 4, "num_heads": 8}
    config = T5Config(vocab_size=512, dropout_rate=0.0, decoder_start_token_id=0, **size)
    model = T5ForConditionalGeneration(config).half()
    tokens = torch.randint(1, 512, (4, 64))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def timm_model(name):
    import timm

    model = timm.create_model(name, num_classes=10)
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(10, (8,))
    return model, lambda: torch.nn.functional.cross_entropy(model(images), labels)


MODELS = {
    "T5, 4 + 4 blocks of 256, float16": t5,
    "mobilenetv2_100, float32": lambda: timm_model("mobilenetv2_100"),
    "mobilenetv3_small_100, float32": lambda: timm_model("mobilenetv3_small_100"),
}


def measured(setting):
    """A row a model."""
    torch.set_num_threads(1)
    pin = clampgrad.pin(setting.split('"')[1]) if setting.startswith("pin") else nullcontext()
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, loss = make()
        if setting == "convert":
            clampgrad.nn.convert(model)
        with pin:
            row = {"setting": setting, "model": name, "saved_bytes": saved_bytes(loss)}
            row["milliseconds"] = 1e3 * min(seconds(model, loss) for _ in range(STEPS))
        digest = hashlib.sha256()
        for parameter in model.parameters():
            if parameter.grad is not None:
                digest.update(parameter.grad.view(torch.uint8).numpy().tobytes())
        yield {**row, "gradients": digest.hexdigest()[:16]}


def seconds(model, loss):
    model.zero_grad()
    start = time.perf_counter()
    loss().backward()
    return time.perf_counter() - start


def in_rounds(rounds):
    """Each setting in processes of its own, in turn: the medians of the times."""
    found = {}
    for _ in range(rounds):
        for setting in SETTINGS:
            command = [sys.executable, "-m", "lab.real_models", "--setting", setting]
            for row in json.loads(subprocess.check_output(command)):
                found.setdefault((setting, row["model"]), []).append(row)
    for rows in found.values():
        yield {**rows[0], "milliseconds": statistics.median(r["milliseconds"] for r in rows)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps([*measured(options.setting)]))
    else:
        versions = {name: importlib.metadata.version(name) for name in ("transformers", "timm")}
        header = {**records.here(), "versions": versions, "data": DATA}
        records.write(options.out, in_rounds(options.rounds), **header, rounds=options.rounds)
