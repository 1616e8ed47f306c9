"""Real models with stock gradients, with pins, and converted: time of a step, and what autograd saves.

    python -m lab.real_models [--compiled] --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors; the
MobileNets of timm have relu6, hardswish and hardsigmoid. All weights are random, as is the data. Every setting
runs in a process of its own, in interleaved rounds; one thread. The digests say where all gradients of the last
step are those of stock, to the bit. Needs transformers and timm.

With --compiled, what is kept under torch.compile: with relu in the place of ReLU6, with a call of torch.clamp and a
pin, and converted.
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


def t5(blocks: int = 4) -> tuple[torch.nn.Module, Callable]:
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": blocks, "num_heads": 8}
    config = T5Config(vocab_size=512, dropout_rate=0.0, decoder_start_token_id=0, **size)
    model = T5ForConditionalGeneration(config).half()
    tokens = torch.randint(1, 512, (4, 64))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def timm_model(name: str) -> tuple[torch.nn.Module, Callable]:
    import timm

    model = timm.create_model(name, num_classes=10)
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(10, (8,))
    return model, lambda: torch.nn.functional.cross_entropy(model(images), labels)


def beginning(name: str, *stages: int, **options) -> tuple[torch.nn.Module, Callable]:
    """The first stages of a convolutional network."""
    import timm

    model = timm.create_model(name, features_only=True, out_indices=stages, **options)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images)[-1].square().mean()


def two_layers() -> tuple[torch.nn.Module, Callable]:
    layers = torch.nn.Linear(256, 1024), torch.nn.ReLU6(), torch.nn.Linear(1024, 256)
    model, x = torch.nn.Sequential(*layers), torch.randn(512, 256)
    return model, lambda: model(x).square().mean()


def mixer(blocks: int) -> tuple[torch.nn.Module, Callable]:
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


def pinned(setting: str):
    """`with pinned(setting):` the gradient is that of the setting."""
    return clampgrad.pin(setting.split('"')[1]) if setting.startswith("pin") else nullcontext()


def measured(setting: str) -> dict:
    torch.set_num_threads(1)
    found = {}
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, loss = make()
        if setting == "convert":
            clampgrad.nn.convert(model)
        with pinned(setting):
            saved = saved_bytes(loss)
            seconds = min(once(model, loss) for _ in range(STEPS))
        found[name] = {"milliseconds": 1e3 * seconds, "saved_bytes": saved}
        found[name]["gradients"] = digest(model)
    return found


def kept_when_compiled(setting: str, make: Callable) -> int:
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
    torch.manual_seed(0)
    model, loss = make()
    if setting == "convert":
        clampgrad.nn.convert(model)
    for parent in [*model.modules()] if setting in ACTIVATIONS else ():
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.ReLU6):
                setattr(parent, name, ACTIVATIONS[setting](child.inplace))
    with pinned(setting):
        return saved_bytes(torch.compile(loss, backend=backend))


def compiled() -> list[dict]:
    return [
        {"setting": setting, "model": name, "saved_bytes": kept_when_compiled(setting, make)}
        for name, make in COMPILED_MODELS.items()
        for setting in COMPILED_SETTINGS
    ]


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
    parser.add_argument("--compiled", action="store_true", help="what is kept under torch.compile")
    options = parser.parse_args()
    if options.setting:
        print(json.dumps(measured(options.setting)))
        return
    found: dict[str, list] = {setting: [] for setting in SETTINGS}
    for _ in range(0 if options.compiled else options.rounds):
        for setting in SETTINGS:
            command = [sys.executable, "-m", "lab.real_models", "--setting", setting]
            found[setting].append(json.loads(subprocess.check_output(command)))
    import timm
    import transformers

    header = {"versions": {m.__name__: m.__version__ for m in (transformers, timm)}, "data": DATA}
    if options.compiled:
        rows = compiled()
    else:
        rows = [row for setting, rounds in found.items() for row in summary(setting, rounds)]
        header["rounds"] = options.rounds
    records.write(options.out, rows, **records.here(), **header)


if __name__ == "__main__":
    main()
