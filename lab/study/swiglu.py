"""What a clamped SwiGLU keeps for backward, and how many kernels torch.compile makes of it.

python -m lab.study.swiglu writes swiglu.jsonl. It compares torch.clamp with clampgrad.clamp, eager
and compiled.
"""

import functools

import torch

import clampgrad
import records
from benchmarks.memory import saved_bytes
from lab.study import results

LIMIT, SHAPE, DTYPE = 7.0, (256, 1024), torch.bfloat16
CLAMPS = {
    "torch.clamp": torch.clamp,
    "clampgrad.clamp": functools.partial(clampgrad.clamp, gradient="inclusive"),
}


def swiglu(clamp, gate, up):
    gate, up = clamp(gate, max=LIMIT), clamp(up, min=-LIMIT, max=LIMIT)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def measure():
    from torch._inductor import metrics

    drawn = 3 * torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    for how in ("eager", "compiled"):
        for name, clamp in CLAMPS.items():
            gate, up = (x.to(DTYPE).requires_grad_() for x in drawn)
            function = functools.partial(swiglu, clamp)
            if how == "compiled":
                torch._dynamo.reset()
                metrics.reset()
                function = torch.compile(function, fullgraph=True)
            row = {"way": f"`{name}`, {how}", "saved_bytes": saved_bytes(function, gate, up)}
            function(gate, up).sum().backward()
            yield row | ({"kernels": metrics.generated_kernel_count} if how == "compiled" else {})


if __name__ == "__main__":
    torch.set_num_threads(1)
    about = {"elements": SHAPE[0] * SHAPE[1], "dtype": str(DTYPE).removeprefix("torch.")}
    records.write(results.path("swiglu"), measure(), **about, torch=torch.__version__)
