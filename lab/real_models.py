"""Real models with stock gradients, with pins, and converted: time of a step,
what autograd saves, and the peak.

    python -m lab.real_models [--device cuda] [--compiled | --evaluated] [--models WORD] --out FILE

transformers' T5 clamps the hidden states of every block in float16, with bounds that are Tensors;
the MobileNets of timm have relu6, hardswish and hardsigmoid. A ResNet has bounds that are
learned: those of PACT for its activations, and steps of LSQ for its weights. All weights are
random, as is the data. Every setting runs in a process of its own, in interleaved rounds. A model
whose library is missing is left out.

On a CPU: small models, one thread, and digests that say where all gradients of the last
step are those of stock, to the bit. On a GPU: what is trained there, with tensor cores,
where cuDNN adds in any order.

With --evaluated, models in 16 bits evaluate on a CPU and record no gradient.
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
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import clampgrad
import records
from benchmarks.memory import saved_bytes

SETTINGS = ("stock", 'pin("installed")', 'pin("inclusive")', 'pin("joint")', "convert")
# `relu` stands in the place of ReLU6: its backward needs nothing but the result.
COMPILED_SETTINGS = ("stock", "relu", 'pin("joint")', "convert")
EVALUATED_SETTINGS = ("stock", 'pin("joint")', "convert")
KINDS = {"": SETTINGS, "compiled": COMPILED_SETTINGS, "evaluated": EVALUATED_SETTINGS}
STEPS = {"cpu": 5, "cuda": 10}
DATA = "a batch of 4 sequences of 64 tokens, or of 8 images of 96 x 96"


def t5(blocks=4, width=256, inner=512, batch=4, length=64):
    from transformers import T5Config, T5ForConditionalGeneration

    size = {
        "d_model": width,
        "d_kv": width // 8,
        "d_ff": inner,
        "num_layers": blocks,
        "num_heads": 8,
    }
    config = T5Config(vocab_size=512, dropout_rate=0.0, decoder_start_token_id=0, **size)
    model = T5ForConditionalGeneration(config).half()
    tokens = torch.randint(1, 512, (batch, length))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def timm_model(name, batch=8, size=96, **options):
    import timm

    model = timm.create_model(name, num_classes=10, **options)
    images, labels = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return model, lambda: nn.functional.cross_entropy(model(images), labels)


def mixed(name, **options):
    """As it is trained on a GPU: bfloat16, channels last, and a batch
    of 128 images of 224 x 224."""
    model, loss = timm_model(name, 128, 224, **options)
    model.to(memory_format=torch.channels_last)

    def in_bfloat16():
        with torch.autocast("cuda", torch.bfloat16):
            return loss()

    return model, in_bfloat16


class PACT(nn.Module):
    """ReLU up to a bound that is learned (arXiv:1805.06085)."""

    def __init__(self, inplace=False):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return torch.clamp(x, torch.zeros_like(self.alpha), self.alpha)


class LSQ(nn.Module):
    """Weights of four bits, by a step that each channel learns (arXiv:1902.08153). They are clamped
    before they are divided, so that the bounds are learned."""

    def __init__(self, weight):
        super().__init__()
        self.step = nn.Parameter(weight.detach().abs().mean((1, 2, 3), keepdim=True) * 2 / 7**0.5)

    def forward(self, weight):
        in_steps = torch.clamp(weight, -8 * self.step, 7 * self.step) / self.step
        return (in_steps + (in_steps.round() - in_steps).detach()) * self.step


def quantised(of=timm_model):
    """A ResNet whose bounds are learned."""
    model, loss = of("resnet18", act_layer=PACT)
    for layer in [*model.modules()]:
        if isinstance(layer, nn.Conv2d):
            register_parametrization(layer, "weight", LSQ(layer.weight))
    return model, loss


def beginning(name, **options):
    """The first two stages of a convolutional network."""
    import timm

    model = timm.create_model(name, features_only=True, out_indices=(0, 1), **options)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images)[-1].square().mean()


def mixer():
    from timm.models.mlp_mixer import MlpMixer

    size = {"img_size": 96, "patch_size": 16, "embed_dim": 256, "num_blocks": 2}
    model = MlpMixer(num_classes=10, act_layer=nn.ReLU6, **size)
    images = torch.randn(8, 3, 96, 96)
    return model, lambda: model(images).square().mean()


def two_layers(width=256, inner=1024, batch=512, dtype=torch.float32):
    layers = nn.Linear(width, inner), nn.ReLU6(), nn.Linear(inner, width)
    model, x = nn.Sequential(*layers).to(dtype), torch.randn(batch, width, dtype=dtype)
    return model, lambda: model(x).float().square().mean()


def six_convolutions():
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU6()]
    for _ in range(5):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU6()]
    model = nn.Sequential(*layers, nn.Conv2d(64, 3, 1), nn.Hardtanh(0, 1))
    images = torch.rand(8, 3, 512, 512)
    return model, lambda: (model(images) - images).square().mean()


LARGE_LAYERS = "2048 to 8192 to 2048, ReLU6, bfloat16, 16384 rows"
MODELS = {
    "cpu": {
        "T5, 4 + 4 blocks of 256, float16": t5,
        "mobilenetv2_100, float32": lambda: timm_model("mobilenetv2_100"),
        "mobilenetv3_small_100, float32": lambda: timm_model("mobilenetv3_small_100"),
        "resnet18 with PACT and LSQ, float32": quantised,
    },
    "cuda": {
        "mobilenetv2_100, 128 of 224 x 224, bfloat16": lambda: mixed("mobilenetv2_100"),
        "mobilenetv3_large_100, 128 of 224 x 224, bfloat16": lambda: mixed("mobilenetv3_large_100"),
        "T5, 6 + 6 blocks of 512, 16 x 512 tokens, float16": lambda: t5(6, 512, 2048, 16, 512),
        "resnet18 with PACT and LSQ, 128 of 224 x 224, bfloat16": lambda: quantised(mixed),
        "6 convolutions of 64, 8 of 512 x 512, float32": six_convolutions,
        LARGE_LAYERS: lambda: two_layers(2048, 8192, 16384, torch.bfloat16),
    },
}
COMPILED_MODELS = {
    "cpu": {
        "256 to 1024 to 256, ReLU6": two_layers,
        "MlpMixer, 2 blocks of 256, ReLU6": mixer,
        "T5, 1 + 1 blocks of 256, float16": lambda: t5(1),
        "mobilenetv2_100, 2 stages": lambda: beginning("mobilenetv2_100"),
        "mobilenetv3_small_100, 2 stages": lambda: beginning("mobilenetv3_small_100"),
        "resnet18, 2 stages, ReLU6": lambda: beginning("resnet18", act_layer=nn.ReLU6),
    },
    "cuda": {
        LARGE_LAYERS: MODELS["cuda"][LARGE_LAYERS],
        "6 convolutions of 64, 8 of 512 x 512, float32": six_convolutions,
    },
}


class Clamped(nn.Module):
    """ReLU6 as a program writes it that calls torch.clamp."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x):
        return x.clamp_(0, 6) if self.inplace else x.clamp(0, 6)


# Modules, which `convert` reaches, and calls of torch.clamp, which a pin reaches.
EVALUATED_MODELS = {
    "mobilenetv2_100, bfloat16": nn.ReLU6,
    "mobilenetv2_100 with torch.clamp, bfloat16": Clamped,
}


def pin_of(setting):
    return clampgrad.pin(setting.split('"')[1]) if setting.startswith("pin") else nullcontext()


def evaluated(setting, word=""):
    """A row a model: its time, and a digest of its result."""
    import timm

    torch.set_num_threads(1)
    for name, activation in EVALUATED_MODELS.items():
        if word not in name or (setting == "convert" and activation is not nn.ReLU6):
            continue  # convert finds modules alone
        torch.manual_seed(0)
        model = timm.create_model("mobilenetv2_100", num_classes=10, act_layer=activation)
        model = model.to(torch.bfloat16, memory_format=torch.channels_last).eval()
        images = torch.randn(8, 3, 96, 96).bfloat16().contiguous(memory_format=torch.channels_last)
        if setting == "convert":
            clampgrad.nn.convert(model)
        seconds = []
        with torch.no_grad(), pin_of(setting):
            for _ in range(40):
                start = time.process_time()
                result = model(images)
                seconds.append(time.process_time() - start)
        same = hashlib.sha256(result.float().numpy().tobytes()).hexdigest()[:16]
        yield {
            "setting": setting,
            "model": name,
            "milliseconds": 1e3 * min(seconds),
            "result": same,
        }


def measured(setting, device, compiled, word=""):
    """A row a model with this word in its name."""
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    pin = pin_of(setting)
    for name, make in (COMPILED_MODELS if compiled else MODELS)[device].items():
        if word not in name:
            continue
        torch.manual_seed(0)
        try:
            with torch.device(device):
                model, loss = make()
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        if setting == "convert":
            clampgrad.nn.convert(model)
        if setting == "relu":
            replace_relu6(model)
        if compiled:
            loss = torch.compile(loss)
        with pin:
            row = {"setting": setting, "model": name, "saved_bytes": saved_bytes(loss)}
            steps = [step(model, loss, device) for _ in range(STEPS[device])]
        row["milliseconds"] = 1e3 * min(seconds for seconds, _ in steps)
        if device == "cpu":
            with pin:
                row["peak_bytes"] = peak_on_cpu(model, loss)
            yield row | {"gradients": digest(model)}
        else:
            yield row | {"peak_bytes": steps[-1][1]}
        del model, loss


def digest(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        if parameter.grad is not None:
            digest.update(parameter.grad.numpy().tobytes())
    return digest.hexdigest()[:16]


def replace_relu6(model):
    for parent in [*model.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, nn.ReLU6):
                setattr(parent, name, nn.ReLU(child.inplace))


def step(model, loss, device):
    """Its seconds, on a CPU those of the processor, which other processes change less; and on a GPU
    the most bytes that were allocated beside the weights and the data."""
    model.zero_grad()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    loss().backward()
    if device == "cpu":
        return clock() - start, None
    torch.cuda.synchronize()
    return clock() - start, torch.cuda.max_memory_allocated() - before


def peak_on_cpu(model, loss):
    """As the peak on a GPU, which torch counts there by itself."""
    model.zero_grad()
    with torch.profiler.profile(profile_memory=True) as profile:
        loss().backward()
    allocated = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()
            most = max(most, allocated)
    return most


def in_rounds(rounds, device, kind, word):
    """Each setting in processes of its own, in turn: the medians of the times."""
    rows_by_case = {}
    for _ in range(rounds):
        for setting in KINDS[kind]:
            command = [sys.executable, "-m", "lab.real_models", "--setting", setting]
            command += ["--device", device, "--models", word] + [f"--{kind}"] * bool(kind)
            *_, printed = subprocess.check_output(command).splitlines()  # after what torch prints
            for row in json.loads(printed):
                rows_by_case.setdefault((setting, row["model"]), []).append(row)
    for rows in rows_by_case.values():
        yield {**rows[0], "milliseconds": statistics.median(r["milliseconds"] for r in rows)}


def versions():
    """Of the libraries that are here."""
    for name in ("transformers", "timm"):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--device", default="cpu", choices=[*MODELS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", help="measure one, and print it")
    parser.add_argument("--models", default="", help="those with this word in their names")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--compiled", action="store_true", help="under torch.compile")
    kinds.add_argument("--evaluated", action="store_true", help="in 16 bits, without a gradient")
    options = parser.parse_args()
    kind = "compiled" if options.compiled else "evaluated" if options.evaluated else ""
    if options.setting:
        if options.evaluated:
            rows = evaluated(options.setting, options.models)
        else:
            rows = measured(options.setting, options.device, options.compiled, options.models)
        print(json.dumps([*rows]))
    else:
        header = {**records.here(options.device), "versions": dict(versions())}
        header |= {"data": DATA, "clock": "process_time"} if options.device == "cpu" else {}
        rows = [*in_rounds(options.rounds, options.device, kind, options.models)]
        if rows:
            records.write(options.out, rows, **header, rounds=options.rounds)
        else:
            print("nothing was measured: transformers and timm are missing")
