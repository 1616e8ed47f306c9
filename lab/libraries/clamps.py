"""What the clamps of other libraries do to a gradient: records/clamps-elsewhere.jsonl,
and the table of docs/howto/without_a_dependency.md.

    pip download --no-deps -d FOLDER brevitas==0.13.4 compressai==1.2.8 \\
        neuralcompression==0.3.1 pyro-ppl==1.9.2
    python -m lab.libraries.clamps FOLDER

It needs torch alone: of each wheel it imports only the file with the function.
"""

import importlib
import os
import subprocess
import sys
import types
import warnings
import zipfile
from math import inf, nan
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import records
from records import code, table

# wheel, module, function; and a call of it with a lower bound of 0.
FUNCTIONS = [
    ("brevitas", "brevitas.ops.autograd_ste_ops", "scalar_clamp_ste_impl", lambda f, x: f(x, 0.0, 1e3)),
    ("pyro_ppl", "pyro.distributions.transforms.utils", "clamp_preserve_gradients", lambda f, x: f(x, 0.0, 1e3)),
    ("compressai", "compressai.ops.bound_ops", "LowerBound", lambda f, x: f(0.0)(x)),
    ("neuralcompression", "neuralcompression.functional._lower_bound", "lower_bound", lambda f, x: f(x, torch.tensor(0.0))),
    ("neuralcompression", "neuralcompression.layers._simplified_gdn", "_clamp_min", lambda f, x: f(x, 0.0)),
]  # fmt: skip


def load(folder, module):
    """The module; without the __init__.py of the packages around it,
    if those import what is not here."""
    try:
        return importlib.import_module(module)
    except ImportError:
        names = module.split(".")[:-1]
        for loaded in [name for name in sys.modules if name.partition(".")[0] == names[0]]:
            del sys.modules[loaded]
        for i in range(1, len(names) + 1):
            package = types.ModuleType(".".join(names[:i]))
            package.__path__ = [str(Path(folder, *names[:i]))]
            sys.modules[package.__name__] = package
        return importlib.import_module(module)


def gradient(f, x, g):
    """Of one element, or the error."""
    leaf = torch.tensor([x], requires_grad=True)
    try:
        return str(round(torch.autograd.grad(f(leaf), leaf, torch.tensor([g]))[0].item(), 3))
    except Exception as error:
        return type(error).__name__


def exported(f):
    """The gradient below the bound, of g = -1."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return f(x)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = torch.export.export(Model(), (torch.ones(1, requires_grad=True),)).module()
    except Exception as error:
        return type(error).__name__
    return gradient(graph, -1.0, -1.0)


def measure(f):
    return {
        "at the bound": [gradient(f, 0.0, g) for g in (1.0, -1.0)],
        "below": [gradient(f, -1.0, g) for g in (1.0, -1.0)],
        "at NaN": [gradient(f, nan, g) for g in (1.0, -1.0)],
        "below, infinite": [gradient(f, -1.0, g) for g in (inf, -inf)],
        "exported, below": exported(f),
        "value of -inf": str(f(torch.tensor([-inf])).item()),
        "dtype": str(f(torch.zeros(1, dtype=torch.bfloat16)).dtype).removeprefix("torch."),
    }


def measure_all(folder):
    """Of the wheels that are unpacked there, where Python finds them."""
    rows = []
    for wheel, module, name, call in FUNCTIONS:
        (metadata,) = Path(folder).glob(f"{wheel}-*.dist-info")
        function = getattr(load(folder, module), name)
        version = metadata.name.removesuffix(".dist-info").split("-")[1]
        row = {"library": f"{wheel} {version}", "function": name}
        rows.append(row | measure(lambda x: call(function, x)))
    records.write("clamps-elsewhere", rows, **records.here())


def main(folder):
    with TemporaryDirectory() as unpacked:
        for wheel in {wheel for wheel, *_ in FUNCTIONS}:
            (file,) = Path(folder).glob(f"{wheel}-*.whl")
            with zipfile.ZipFile(file) as archive:
                archive.extractall(unpacked)
        program = f"from lab.libraries import clamps; clamps.measure_all({unpacked!r})"
        path = os.pathsep.join([unpacked, os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=True
        )


@table()
def clamps_elsewhere():
    """The gradient for g = 1 and g = -1, or for g = inf and g = -inf."""
    found = records.read("clamps-elsewhere")
    of_both = ("at the bound", "below", "at NaN", "below, infinite")
    yield "library", "function", *of_both, "below, exported", "value of -inf", "dtype of bfloat16"
    for row in found["rows"]:
        cells = (", ".join(dict.fromkeys(row[name])) for name in of_both)
        others = row["exported, below"], row["value of -inf"], row["dtype"]
        yield row["library"], code(row["function"]), *cells, *others
    yield f"{records.made_on(found)}."


if __name__ == "__main__":
    main(sys.argv[1])
