"""What models of timm keep for backward, and how long a step takes: stock, converted,
and converted with an example.

    python -m lab.zoo --out convert-zoo

Random weights, training mode, one process for each model, one thread. The three settings take
turns, and the medians of their steps are recorded. Bytes are those of the graph of one
forward, weights included. Needs timm.
"""

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time

import torch

import clampgrad
import records
from benchmarks.memory import saved_bytes

MODELS = (
    *("resnet18", "resnet50", "vgg11", "densenet121", "inception_v3", "ese_vovnet19b_dw"),
    *(
        "mobilenetv2_100",
        "mobilenetv3_large_100",
        "efficientnet_lite0",
        "mnasnet_100",
        "rexnetr_200",
    ),
    *("ghostnet_100", "hgnet_tiny", "regnetx_004", "res2net50_14w_8s", "dla34", "hardcorenas_a"),
    *("selecsls42b", "xception41", "mixnet_s"),
)
IMAGES = 8
SIZE = 96
STEPS = 5


def settings(images):
    return {
        "stock": lambda model: model,
        "convert": clampgrad.nn.convert,
        "with an example": lambda model: clampgrad.nn.convert(model, example_inputs=images),
    }


def step(model, images, labels):
    start = time.perf_counter()
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    return time.perf_counter() - start


def measured(name):
    import timm

    torch.set_num_threads(1)
    images, labels = torch.randn(IMAGES, 3, SIZE, SIZE), torch.randint(10, (IMAGES,))
    models = {}
    for setting, change in settings(images).items():
        torch.manual_seed(0)
        models[setting] = change(timm.create_model(name, num_classes=10))
    rows = {setting: {"saved_bytes": saved_bytes(m, images)} for setting, m in models.items()}
    times = {setting: [] for setting in models}
    for _ in range(STEPS + 1):
        for setting, model in models.items():
            times[setting].append(step(model, images, labels))
    for setting, row in rows.items():
        conversions = clampgrad.nn.conversions(models[setting]).values()
        row["milliseconds"] = 1e3 * statistics.median(times[setting][1:])
        row["converted"] = sum(not text.startswith("left alone") for text in conversions)
        yield {"model": name, "setting": setting, **row}


@records.table(left=1)
def convert_zoo():
    """Bytes of the graph and time of a step, against stock."""
    record = records.read("convert-zoo")
    rows = {(r["model"], r["setting"]): r for r in record["rows"]}
    yield (
        "model",
        "kept, stock, MiB",
        "kept, `convert`, x stock",
        "kept, with an example, x stock",
        "step, `convert`, x stock",
        "step, with an example, x stock",
    )
    for model in dict.fromkeys(model for model, _ in rows):
        stock, *others = (rows[model, s] for s in dict.fromkeys(s for _, s in rows))
        bytes_, steps = (
            [f"{other[what] / stock[what]:.{d}f}" for other in others]
            for what, d in (("saved_bytes", 3), ("milliseconds", 2))
        )
        yield model, f"{stock['saved_bytes'] / 2**20:.1f}", *bytes_, *steps
    yield (
        "What the graph of a forward keeps, weights included, and the time of a training step; `x "
        "stock` is a multiple of stock's: first for `convert(model)`, then with `example_inputs`. "
        f"{IMAGES} random "
        f"images of {SIZE} x {SIZE}, random weights, float32, one thread; steps are the medians of "
        f"{record['steps']} in turn. timm {record['timm']}, torch {record['torch']}, "
        f"{record['machine']['cpu']}."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a record, or a file")
    parser.add_argument("--model", help="measure one, and print it")
    options = parser.parse_args()
    if options.model:
        print(json.dumps([*measured(options.model)]))
    else:
        command = [sys.executable, "-m", "lab.zoo", "--model"]
        rows = [r for m in MODELS for r in json.loads(subprocess.check_output([*command, m]))]
        header = {**records.here(), "timm": importlib.metadata.version("timm"), "steps": STEPS}
        records.write(options.out, rows, **header)
