"""clampgrad on the torch that was built: python package.py OUT, with the package on PYTHONPATH."""

import json
import subprocess
import sys
from pathlib import Path

import torch

import answering
import clampgrad

sys.path.append(str(Path(__file__).resolve().parents[2] / "test"))

from oracle import factors  # noqa: E402

AT_BOUND = "clamp(x, 0, 1) at 0"
# At a bound, at equal bounds, at ties: operator and arguments.
TIES = (
    *(("clamp", 0.0, 0.0, 1.0), ("clamp", 1.0, 0.0, 1.0), ("clamp", 0.0, 0.0, 0.0)),
    *(("clamp", -1.0, 0.0, 0.0), ("clamp_min", 0.0, 0.0), ("clamp_max", 0.0, 0.0)),
    *((name, 0.0, 0.0) for name in ("maximum", "minimum", "fmax", "fmin")),
)
CALLS = {AT_BOUND: ("numbers", "clamp", 0.0, 0.0, 1.0)} | {
    f"{name}({', '.join(f'{v:g}' for v in values)}) of Tensors": ("tensors", name, *values)
    for name, *values in TIES
}
PINS = ("inclusive", "joint", "half")


def tensors(values) -> list[torch.Tensor]:
    return [torch.tensor([v], dtype=torch.float64) for v in values]


def gradients(module, **how) -> dict[str, list[float]]:
    found = {}
    for call, (kind, name, *values) in CALLS.items():
        count = len(values) if kind == "tensors" else 1
        variables = [t.requires_grad_() for t in tensors(values[:count])]
        y = getattr(module, name)(*variables, *values[count:], **how)
        found[call] = [g.item() for g in torch.autograd.grad(y, variables)]
    return found


def wanted(convention: str) -> dict[str, list[float]]:
    """What the table says."""
    return {
        call: factors(name, kind, convention, tensors(values)).flatten().tolist()
        for call, (kind, name, *values) in CALLS.items()
    }


def main() -> None:
    answering.check()
    own, pinned = gradients(torch), {}
    for name in PINS:
        with clampgrad.pin(name):
            pinned[name] = gradients(torch)
    survey = clampgrad.survey()
    (row,) = (r for r in survey if (r.function, r.at) == ("torch.clamp(x, 0, 6)", "x = 0"))
    with clampgrad.audit() as report:
        gradients(torch)
    info = subprocess.check_output([sys.executable, "-m", "clampgrad", "info", "--json"])
    found = {
        "implementation": clampgrad.implementation,
        "version": clampgrad.__version__,
        AT_BOUND: own[AT_BOUND][0],
        "own": own,
        "wanted": {name: wanted(name) for name in PINS},
        "by name": {name: gradients(clampgrad, gradient=name) for name in PINS},
        "pinned": pinned,
        "survey": row.measured[0][0],
        "patched": {
            "survey": "is patched: " in " ".join(str(survey).split()),
            "audit": report.as_data()["patched"],
            "info": json.loads(info)["patched"],
        },
    }
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
