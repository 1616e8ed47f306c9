"""The calls of the clamp family that are timed because a series changes their gradients. They need only torch, since
a torch that was built in its checkout imports this too."""

import torch
import torch.autograd.forward_ad as fwad

# Of float32 whatever x is, as transformers' T5 has them.
T5 = "clamp(x, low, high), bounds of float32 and no dimension"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def backward(function, *variables):
    y = function(*variables)
    g = torch.ones_like(y)
    return lambda: torch.autograd.grad(y, variables, g, retain_graph=True)


def forward_mode(function, *variables):
    tangents = [torch.ones_like(v) for v in variables]

    def run():
        with fwad.dual_level():
            function(*map(fwad.make_dual, variables, tangents))

    return run


def cases(x):
    """Name: what is timed."""
    low, high = (torch.full_like(x, b).requires_grad_() for b in (0.0, 1.0))
    other = x.detach().flip(0).contiguous().requires_grad_()
    constants = low.detach(), high.detach()
    numbers = torch.tensor(0.0), torch.tensor(1.0)
    return {
        "hardtanh(x, 0, 1)": backward(lambda x: torch.nn.functional.hardtanh(x, 0.0, 1.0), x),
        "clamp(x, 0, 1)": backward(lambda x: x.clamp(0, 1), x),
        "clamp_min(x, 0)": backward(lambda x: x.clamp_min(0), x),
        T5: backward(lambda x: x.clamp(*numbers), x),
        "clamp(x, low, high), one gradient": backward(lambda x: x.clamp(*constants), x),
        "clamp(x, low, high), three": backward(torch.clamp, x, low, high),
        "maximum(x, y)": backward(torch.maximum, x, other),
        "fmax(x, y)": backward(torch.fmax, x, other),
        "clamp_min(x, y)": backward(torch.clamp_min, x, other),
        "forward mode of clamp(x, low, high)": forward_mode(torch.clamp, x, low, high),
        "forward mode of maximum(x, y)": forward_mode(torch.maximum, x, other),
    }
