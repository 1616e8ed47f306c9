"""clampgrad on the torch that was built: python package.py OUT, with the package on PYTHONPATH."""

import json
import subprocess
import sys
from pathlib import Path

import torch

import clampgrad

sys.path.append(str(Path(__file__).resolve().parents[2] / "test"))

from oracle import factors  # noqa: E402

AT_BOUND = "clamp(x, 0, 1) at 0"
# Operator and arguments, all of them Tensors: at a bound, at equal bounds, at ties.
TIES = (
    *(("clamp", 0.0, 0.0, 1.0), ("clamp", 1.0, 0.0, 1.0), ("clamp", 0.0, 0.0, 0.0)),
    *(("clamp", -1.0, 0.0, 0.0), ("clamp_min", 0.0, 0.0), ("clamp_max", 0.0, 0.0)),
    *((name, 0.0, 0.0) for name in ("maximum", "minimum", "fmax", "fmin")),
)
PINS = ("inclusive", "joint", "half")


def called(operator: str, *values: float) -> str:
    return f"{operator}({', '.join(f'{v:g}' for v in values)}) of Tensors"


def tensors(values, differentiated: bool) -> list[torch.Tensor]:
    return [torch.tensor([v], dtype=torch.float64, requires_grad=differentiated) for v in values]


def of_tensors(function, *values: float, **how) -> list[float]:
    given = tensors(values, True)
    return [g.item() for g in torch.autograd.grad(function(*given, **how), given)]


def at_bound(function, **how) -> list[float]:
    x = torch.zeros(1, requires_grad=True)
    return [torch.autograd.grad(function(x, 0, 1, **how), x)[0].item()]


def own() -> dict[str, list[float]]:
    """What torch says, by itself or under a pin."""
    ties = {called(*tie): of_tensors(getattr(torch, tie[0]), *tie[1:]) for tie in TIES}
    return {AT_BOUND: at_bound(torch.clamp)} | ties


def asked(name: str) -> dict[str, list[float]]:
    """What our functions say that take the convention by name."""
    ties = {t: getattr(clampgrad, t[0]) for t in TIES}
    found = {called(*t): of_tensors(f, *t[1:], gradient=name) for t, f in ties.items()}
    return {AT_BOUND: at_bound(clampgrad.clamp, gradient=name)} | found


def wanted(name: str) -> dict[str, list[float]]:
    """What the table says."""
    numbers = factors("clamp", "numbers", name, tensors((0.0, 0.0, 1.0), False)).flatten().tolist()
    ties = {
        called(*t): factors(t[0], "tensors", name, tensors(t[1:], False)).flatten().tolist()
        for t in TIES
    }
    return {AT_BOUND: numbers} | ties


def info() -> str | None:
    command = [sys.executable, "-m", "clampgrad", "info", "--json"]
    found: str | None = json.loads(subprocess.check_output(command))["patched"]
    return found


def main() -> None:
    plain = own()
    found = {
        "implementation": clampgrad.implementation,
        "version": clampgrad.__version__,
        AT_BOUND: plain[AT_BOUND][0],
        "own": plain,
        "wanted": {name: wanted(name) for name in PINS},
        "by name": {name: asked(name) for name in PINS},
        "pinned": {},
    }
    for name in PINS:
        with clampgrad.pin(name):
            found["pinned"][name] = own()
    survey = clampgrad.survey()
    (row,) = (r for r in survey if (r.function, r.at) == ("torch.clamp(x, 0, 6)", "x = 0"))
    found["survey"] = row.measured[0][0]
    with clampgrad.audit() as report:
        at_bound(torch.clamp)
    found["patched"] = {
        "survey": "is patched: " in " ".join(str(survey).split()),
        "audit": report.as_data()["patched"],
        "info": info(),
    }
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
