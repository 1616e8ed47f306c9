"""What a clamped SwiGLU keeps for backward, and how many kernels torch.compile makes of it.

python -m lab.study.swiglu writes swiglu.json. It compares torch.clamp with clampgrad.clamp, eager
and compiled.
"""

import json

import torch

import clampgrad
from benchmarks.memory import saved_bytes
from lab.study import records

LIMIT, SHAPE = 7.0, (256, 1024)


def naive(gate, up):
    gate, up = torch.clamp(gate, max=LIMIT), torch.clamp(up, -LIMIT, LIMIT)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def named(gate, up):
    gate = clampgrad.clamp(gate, max=LIMIT, gradient="inclusive")
    up = clampgrad.clamp(up, -LIMIT, LIMIT, gradient="inclusive")
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def measure(dtype=torch.bfloat16):
    from torch._inductor import metrics

    generator = torch.Generator().manual_seed(0)
    drawn = 3 * torch.randn(2, *SHAPE, generator=generator)
    ways = {}
    for compiled in (False, True):
        for name, function in (("torch.clamp", naive), ("clampgrad.clamp", named)):
            gate, up = (x.to(dtype).requires_grad_() for x in drawn)
            found = {}
            if compiled:
                torch._dynamo.reset()
                metrics.reset()
                function = torch.compile(function, fullgraph=True)
            found["saved_bytes"] = saved_bytes(function, gate, up)
            function(gate, up).sum().backward()
            if compiled:
                found["kernels"] = metrics.generated_kernel_count
            ways[f"`{name}`, {'compiled' if compiled else 'eager'}"] = found
    return dict(
        ways=ways,
        elements=drawn[0].numel(),
        dtype=str(dtype).removeprefix("torch."),
        torch=torch.__version__,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = measure()
    print(json.dumps(data, indent=1))
    records.write("swiglu", data)
