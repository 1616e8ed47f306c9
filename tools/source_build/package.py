"""clampgrad on the torch that was built: python package.py OUT, with the package on PYTHONPATH."""

import json
import sys
from pathlib import Path

import torch

import clampgrad


def gradient(function) -> float:
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(function(x), x)[0].item()


def main() -> None:
    found = {"implementation": clampgrad.implementation, "version": clampgrad.__version__}
    found["clamp(x, 0, 1) at 0"] = gradient(lambda x: torch.clamp(x, 0, 1))
    for name in ("inclusive", "joint", "half"):
        with clampgrad.pin(name):
            found[f"under pin {name}"] = gradient(lambda x: torch.clamp(x, 0, 1))
        found[f"clampgrad.clamp, {name}"] = gradient(
            lambda x, name=name: clampgrad.clamp(x, 0, 1, gradient=name)
        )
    (row,) = (
        r for r in clampgrad.survey() if (r.function, r.at) == ("torch.clamp(x, 0, 6)", "x = 0")
    )
    found["survey"] = row.measured[0][0]
    with clampgrad.audit() as report:
        gradient(lambda x: torch.clamp(x, 0, 1))
    found["patched"] = report.as_data()["patched"]
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
