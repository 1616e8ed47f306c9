"""The gradients of the torch that was built, at every point of the table: python gradients.py OUT [--quick].

What `verify` asks of a wheel is asked here in the same way; to that comes what no wheel can show of a
patch: compiled autograd, and TorchScript's executor with the functions that are compiled into it.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import torch
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters

import answering
import checkout  # noqa: F401
from tools.verify import checks, torchscript

# The name changed in 2.6.
enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable


def in_compiled_autograd(f, args, g):
    torch._dynamo.reset()
    args = [a.clone().requires_grad_() for a in args]
    y = f(*args)
    with enable(lambda graph: torch.compile(graph, backend="aot_eager", dynamic=False)):
        return torch.autograd.grad(y, args, g, allow_unused=True)


def compiled_backward() -> dict[str, list]:
    """A few points of every operator: each is compiled, which takes seconds."""
    found: dict[str, list] = {}
    before = Counter(counters["compiled_autograd"])["captures"]
    calls = 0
    for operator, kind in [(o, k) for o in checks.OPERATORS for k in checks.kinds(o)]:
        for forms, args, g, numbers in list(checks.calls(operator, kind))[:3]:
            variables = args[:1] if numbers else args
            values = in_compiled_autograd(forms[""], variables, g)
            key = f"{operator}, {kind}, compiled autograd"
            found.setdefault(key, []).extend(checks.stacked(args, g, values))
            calls += 1
    captured = Counter(counters["compiled_autograd"])["captures"] - before
    assert captured == calls, f"{captured} of {calls} backward passes were compiled"
    return found


def main() -> None:
    answering.check()
    torch.set_num_threads(1)
    found = checks.gradients() | checks.nodes()
    if "--quick" not in sys.argv:
        found["gradients"] |= checks.inductor()["gradients"]
        found["gradients"] |= compiled_backward()
    found["gradients"] |= torchscript.executed()
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
