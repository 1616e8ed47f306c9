"""Guards against NaN whose bound vanishes in a dtype of few bits, and guards that hold.

python -m lab.study.guards writes guards.json.
"""

import json

import torch

import clampgrad
from lab.study import records

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GRADIENTS = ("inclusive", "min_norm")

# Guard, the bound in it, what stands behind it, and the argument at which it is needed.
FRAGILE = (
    ("log(1 - clamp(p, max=1 - 1e-6))", 1 - 1e-6, lambda c: torch.log(1 - c), "max", 1.0),
    ("acos(clamp(c, max=1 - 1e-6))", 1 - 1e-6, torch.acos, "max", 1.0),
    ("sqrt(clamp(v, min=1e-8))", 1e-8, torch.sqrt, "min", 0.0),
    ("1 / clamp(n, min=1e-8)", 1e-8, torch.reciprocal, "min", 0.0),
)


def at(function, bound, side, x, dtype, gradient):
    """Value and gradient of a guarded function at `x`."""
    x = torch.tensor(x, dtype=dtype, requires_grad=True)
    y = function(clampgrad.clamp(x, **{side: bound}, gradient=gradient))
    (slope,) = torch.autograd.grad(y, x)
    return y.item(), slope.item()


def measure():
    rows = []
    for guard, written, function, side, x in FRAGILE:
        for dtype in DTYPES:
            ends = [at(function, written, side, x, dtype, gradient) for gradient in GRADIENTS]
            rows.append(
                dict(
                    guard=guard,
                    at=x,
                    dtype=str(dtype).removeprefix("torch."),
                    bound=torch.tensor(written, dtype=dtype).item(),
                    value=str(ends[0][0]),
                    gradient={how: str(end[1]) for how, end in zip(GRADIENTS, ends)},
                )
            )
    return dict(guards=rows, torch=torch.__version__)


if __name__ == "__main__":
    data = measure()
    records.write("guards", data)
    print(json.dumps(data, indent=1))
