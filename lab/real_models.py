"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python -m lab.real_models [--compiled] --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors; the
MobileNets of timm have relu6, hardswish and hardsigmoid. All weights are random, as is the data. Every setting
runs in a process of its own, in interleaved rounds; one thread. The digests say where all gradients of the last
step are those of stock, to the bit. Needs transformers and timm.

With --compiled, what is kept under torch.compile: with relu in the place of ReLU6, with a call of torch.clamp and a
pin, and converted.
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


def beginning(name, *stages, **options):
    """The first stages of a convolutional network."""
    import timm

    model = timm.create_model(name, features_only=True, out_indices=stages, **options)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images)[-1].square().mean()


def two_layers():
    layers = torch.nn.Linear(256, 1024), torch.nn.ReLU6(), torch.nn.Linear(1024, 256)
    model, x = torch.nn.Sequential(*layers), torch.randn(512, 256)
    return model, lambda: model(x).square().mean()


def mixer(blocks):
    from timm.models.mlp_mixer import MlpMixer

    size = {"img_size": 96, "patch_size": 16, "embed_dim": 256, "num_blocks": blocks}
    model = MlpMixer(num_classes=10, act_layer=torch.nn.ReLU6, **size)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images).square().mean()


MODELS = {
    "T5, 4 + 4 blocks of 256, float16": t5,
    "mobilenetv2_100, float32": lambda: timm_model("mobilenetv2_100"),
    "mobilenetv3_small_100, float32": lambda: timm_model("mobilenetv3_small_100"),
}

# The beginnings, because a whole one takes long to trace. Those without a clamp have ReLU6 for their activation.
COMPILED_MODELS = {
    "256 to 1024 to 256, ReLU6": two_layers,
    "MlpMixer, 2 blocks of 256, ReLU6": lambda: mixer(2),
    "mobilenetv2_100, 2 stages": lambda: beginning("mobilenetv2_100", 0, 1),
    "T5, 1 + 1 blocks of 256, float16": lambda: t5(1),
    "mobilenetv3_small_100, 2 stages": lambda: beginning("mobilenetv3_small_100", 0, 1),
    "resnet18, 2 stages, ReLU6": lambda: beginning("resnet18", 0, 1, act_layer=torch.nn.ReLU6),
}


class Clamp(torch.nn.ReLU6):
    """The same as a call, which a pin reaches."""

    def forward(self, x):
        return torch.clamp_(x, 0, 6) if self.inplace else torch.clamp(x, 0, 6)


# What stands in the place of ReLU6.
ACTIVATIONS = {"relu": torch.nn.ReLU, 'pin("joint")': Clamp}
COMPILED_SETTINGS = ("stock", *ACTIVATIONS, "convert")


def prepared(setting, make):
    """The model and its loss in a setting, and what both must run in."""
    torch.manual_seed(0)
    model, loss = make()
    if setting == "convert":
        clampgrad.nn.convert(model)
    pin = clampgrad.pin(setting.split('"')[1]) if setting.startswith("pin") else nullcontext()
    return model, loss, pin


def measured(setting):
    """A row a model."""
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        model, loss, pin = prepared(setting, make)
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


def kept_when_compiled(setting, make):
    """Bytes, as Inductor's decompositions and its partition of the graph decide; no C++ is compiled."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
    )
    torch._dynamo.reset()
    model, loss, pin = prepared(setting, make)
    for parent in [*model.modules()] if setting in ACTIVATIONS else ():
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.ReLU6):
                setattr(parent, name, ACTIVATIONS[setting](child.inplace))
    with pin:
        return saved_bytes(torch.compile(loss, backend=backend))


def compiled():
    for name, make in COMPILED_MODELS.items():
        for setting in COMPILED_SETTINGS:
            kept = kept_when_compiled(setting, make)
            yield {"setting": setting, "model": name, "saved_bytes": kept}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    parser.add_argument("--compiled", action="store_true", help="what is kept under torch.compile")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps([*measured(options.setting)]))
    else:
        versions = {name: importlib.metadata.version(name) for name in ("transformers", "timm")}
        header = {**records.here(), "versions": versions, "data": DATA}
        if options.compiled:
            rows = compiled()
        else:
            rows, header["rounds"] = in_rounds(options.rounds), options.rounds
        records.write(options.out, rows, **header)
