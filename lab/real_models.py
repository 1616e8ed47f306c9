"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python -m lab.real_models [--compiled] --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors; the
MobileNets of timm have relu6, hardswish and hardsigmoid. All weights are random, as is the data. Every setting
runs in a process of its own, in interleaved rounds; one thread. The digests say where all gradients of the last
step are those of stock, to the bit. Needs transformers and timm.

With --compiled, Inductor compiles the beginnings of models, as whole ones take long.
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
# `relu` stands in the place of ReLU6: its backward needs nothing but the result.
COMPILED_SETTINGS = ("stock", "relu", 'pin("joint")', "convert")
STEPS = 5
DATA = "a batch of 4 sequences of 64 tokens, or of 8 images of 96 x 96"


def t5(blocks=4):
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": blocks, "num_heads": 8}
    config = T5Config(vocab_size=512, dropout_rate=0.0, decoder_start_token_id=0, **size)
    model = T5ForConditionalGeneration(config).half()
    tokens = torch.randint(1, 512, (4, 64))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def timm_model(name):
    import timm

    model = timm.create_model(name, num_classes=10)
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(10, (8,))
    return model, lambda: torch.nn.functional.cross_entropy(model(images), labels)


def beginning(name, **options):
    """The first two stages of a convolutional network."""
    import timm

    model = timm.create_model(name, features_only=True, out_indices=(0, 1), **options)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images)[-1].square().mean()


def mixer():
    from timm.models.mlp_mixer import MlpMixer

    size = {"img_size": 96, "patch_size": 16, "embed_dim": 256, "num_blocks": 2}
    model = MlpMixer(num_classes=10, act_layer=torch.nn.ReLU6, **size)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images).square().mean()


def two_layers():
    layers = torch.nn.Linear(256, 1024), torch.nn.ReLU6(), torch.nn.Linear(1024, 256)
    model, x = torch.nn.Sequential(*layers), torch.randn(512, 256)
    return model, lambda: model(x).square().mean()


MODELS = {
    "T5, 4 + 4 blocks of 256, float16": t5,
    "mobilenetv2_100, float32": lambda: timm_model("mobilenetv2_100"),
    "mobilenetv3_small_100, float32": lambda: timm_model("mobilenetv3_small_100"),
}
COMPILED_MODELS = {
    "256 to 1024 to 256, ReLU6": two_layers,
    "MlpMixer, 2 blocks of 256, ReLU6": mixer,
    "T5, 1 + 1 blocks of 256, float16": lambda: t5(1),
    "mobilenetv2_100, 2 stages": lambda: beginning("mobilenetv2_100"),
    "mobilenetv3_small_100, 2 stages": lambda: beginning("mobilenetv3_small_100"),
    "resnet18, 2 stages, ReLU6": lambda: beginning("resnet18", act_layer=torch.nn.ReLU6),
}


def measured(setting, compiled):
    """A row a model."""
    torch.set_num_threads(1)
    pin = clampgrad.pin(setting.split('"')[1]) if setting.startswith("pin") else nullcontext()
    for name, make in (COMPILED_MODELS if compiled else MODELS).items():
        torch.manual_seed(0)
        model, loss = make()
        if setting == "convert":
            clampgrad.nn.convert(model)
        if setting == "relu":
            replace_relu6(model)
        if compiled:
            loss = torch.compile(loss)
        with pin:
            row = {"setting": setting, "model": name, "saved_bytes": saved_bytes(loss)}
            row["milliseconds"] = 1e3 * min(seconds(model, loss) for _ in range(STEPS))
        digest = hashlib.sha256()
        for parameter in model.parameters():
            if parameter.grad is not None:
                digest.update(parameter.grad.view(torch.uint8).numpy().tobytes())
        yield {**row, "gradients": digest.hexdigest()[:16]}


def replace_relu6(model):
    for parent in [*model.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.ReLU6):
                setattr(parent, name, torch.nn.ReLU(child.inplace))


def seconds(model, loss):
    model.zero_grad()
    start = time.perf_counter()
    loss().backward()
    return time.perf_counter() - start


def in_rounds(rounds, compiled):
    """Each setting in processes of its own, in turn: the medians of the times."""
    found = {}
    for _ in range(rounds):
        for setting in COMPILED_SETTINGS if compiled else SETTINGS:
            command = [sys.executable, "-m", "lab.real_models", "--setting", setting]
            command += ["--compiled"] * compiled
            for row in json.loads(subprocess.check_output(command)):
                found.setdefault((setting, row["model"]), []).append(row)
    for rows in found.values():
        yield {**rows[0], "milliseconds": statistics.median(r["milliseconds"] for r in rows)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    parser.add_argument("--compiled", action="store_true", help="under torch.compile")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps([*measured(options.setting, options.compiled)]))
    else:
        versions = {name: importlib.metadata.version(name) for name in ("transformers", "timm")}
        header = {**records.here(), "versions": versions, "data": DATA}
        rows = in_rounds(options.rounds, options.compiled)
        records.write(options.out, rows, **header, rounds=options.rounds)
