"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python benchmarks/real_models.py --out FILE

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
from pathlib import Path

import torch

import clampgrad
from hardware import machine
from memory import saved_bytes

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
    """Of every parameter's gradient, to the bit."""
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


def summary(rounds: list[dict]) -> dict:
    return {
        name: {
            "milliseconds": round(statistics.median(r[name]["milliseconds"] for r in rounds), 2),
            **{key: rounds[0][name][key] for key in ("saved_bytes", "gradients")},
        }
        for name in rounds[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps(measured(options.setting)))
        return
    found: dict[str, list] = {setting: [] for setting in SETTINGS}
    for _ in range(options.rounds):
        for setting in SETTINGS:
            command = [sys.executable, __file__, "--setting", setting]
            found[setting].append(json.loads(subprocess.check_output(command)))
    import timm
    import transformers

    versions = {m.__name__: m.__version__ for m in (torch, transformers, timm)}
    settings = {setting: summary(rounds) for setting, rounds in found.items()}
    result = {"versions": versions, "machine": machine(), "data": DATA, "rounds": options.rounds}
    result["settings"] = settings
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
