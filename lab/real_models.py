"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python -m lab.real_models --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors; the
MobileNets of timm have relu6, hardswish and hardsigmoid. All weights are random, as is the data. Every setting
runs in a process of its own, in interleaved rounds; one thread. The digests say where all gradients of the last
step are those of stock, to the bit. Needs transformers and timm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

import clampgrad
import records
from benchmarks.memory import saved_bytes

SETTINGS = ("stock", 'pin("installed")', 'pin("inclusive")', 'pin("joint")', "convert")
STEPS = 5
DATA = "a batch of 4 sequences of 64 tokens, or of 8 images of 96 x 96"


def t5() -> tuple[torch.nn.Module, Callable]:
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 4, "num_heads": 8}
    config = T5Config(vocab_size=512, dropout_rate=0.0, decoder_start_token_id=0, **size)
    model = T5ForConditionalGeneration(config).half()
    tokens = torch.randint(1, 512, (4, 64))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def timm_model(name: str) -> tuple[torch.nn.Module, Callable]:
    import timm

    model = timm.create_model(name, num_classes=10)
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(10, (8,))
    return model, lambda: torch.nn.functional.cross_entropy(model(images), labels)


MODELS = {
    "T5, 4 + 4 blocks of 256, float16": t5,
    "mobilenetv2_100, float32": lambda: timm_model("mobilenetv2_100"),
    "mobilenetv3_small_100, float32": lambda: timm_model("mobilenetv3_small_100"),
}


def measured(setting: str) -> dict:
    torch.set_num_threads(1)
    found = {}
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, loss = make()
        pin = nullcontext()
        if setting.startswith("pin"):
            pin = clampgrad.pin(setting.split('"')[1])
        elif setting == "convert":
            clampgrad.nn.convert(model)
        with pin:
            saved = saved_bytes(loss)
            seconds = min(once(model, loss) for _ in range(STEPS))
        found[name] = {"milliseconds": 1e3 * seconds, "saved_bytes": saved}
        found[name]["gradients"] = digest(model)
    return found


def digest(model: torch.nn.Module) -> str:
    """A hash of every parameter's gradient."""
    data = hashlib.sha256()
    for parameter in model.parameters():
        if parameter.grad is not None:
            data.update(parameter.grad.view(torch.uint8).numpy().tobytes())
    return data.hexdigest()[:16]


def once(model: torch.nn.Module, loss: Callable) -> float:
    model.zero_grad()
    start = time.perf_counter()
    loss().backward()
    return time.perf_counter() - start


def summary(setting: str, rounds: list[dict]) -> list[dict]:
    """A row a model; the digest is that of the first round."""
    return [
        {
            "setting": setting,
            "model": name,
            **first,
            "milliseconds": statistics.median(r[name]["milliseconds"] for r in rounds),
        }
        for name, first in rounds[0].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps(measured(options.setting)))
        return
    found: dict[str, list] = {setting: [] for setting in SETTINGS}
    for _ in range(options.rounds):
        for setting in SETTINGS:
            command = [sys.executable, "-m", "lab.real_models", "--setting", setting]
            found[setting].append(json.loads(subprocess.check_output(command)))
    import timm
    import transformers

    rows = [row for setting, rounds in found.items() for row in summary(setting, rounds)]
    versions = {m.__name__: m.__version__ for m in (transformers, timm)}
    header = {"versions": versions, "data": DATA, "rounds": options.rounds}
    records.write(options.out, rows, **records.here(), **header)


if __name__ == "__main__":
    main()
