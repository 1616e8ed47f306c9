"""A clamp in the middle of a chain: where it blocks, everything before it receives nothing.

a[0] * b[0] = 1 is exactly at the lower bound, and 4 * 2 = 8 is above the upper one.
"""

import torch

import clampgrad

A = [1, 2, 3, 4]
B = [1, 2, 1, 2]


def gradients(how):
    a = torch.tensor(A, dtype=torch.float32, requires_grad=True)
    b = torch.tensor(B, dtype=torch.float32, requires_grad=True)
    total = clampgrad.clamp(a * b, 1, 5, gradient=how).sum()
    total.backward()
    return {"value": total.item(), "a.grad": a.grad.tolist(), "b.grad": b.grad.tolist()}


def measure():
    return {"a": A, "b": B, **{how: gradients(how) for how in clampgrad.CONVENTIONS}}
