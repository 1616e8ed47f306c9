"""Guards against NaN whose bound vanishes in a dtype of few bits, and guards that hold.

python -m lab.study.guards writes guards.jsonl.
"""

import torch

import clampgrad
import records
from lab.study import results

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# Guard, the bound in it, what stands behind it, and the argument at which it is needed.
FRAGILE = (
    ("log(1 - clamp(p, max=1 - 1e-6))", 1 - 1e-6, lambda c: torch.log(1 - c), "max", 1.0),
    ("acos(clamp(c, max=1 - 1e-6))", 1 - 1e-6, torch.acos, "max", 1.0),
    ("sqrt(clamp(v, min=1e-8))", 1e-8, torch.sqrt, "min", 0.0),
    ("1 / clamp(n, min=1e-8)", 1e-8, torch.reciprocal, "min", 0.0),
)


def measure():
    """Value and gradient of every guarded function, as texts: JSON has no infinity."""
    for guard, written, function, side, at in FRAGILE:
        for dtype in DTYPES:
            row = {"guard": guard, "at": at, "dtype": str(dtype).removeprefix("torch.")}
            row["bound"] = torch.tensor(written, dtype=dtype).item()
            for how in ("inclusive", "min_norm"):
                x = torch.tensor(at, dtype=dtype, requires_grad=True)
                y = function(clampgrad.clamp(x, **{side: written}, gradient=how))
                row["value"] = str(y.item())
                row[how] = str(torch.autograd.grad(y, x)[0].item())
            yield row


if __name__ == "__main__":
    records.write(results.path("guards"), measure(), digits=None, torch=torch.__version__)
