"""Prints for the programs beside this file: lines by which two runs are compared to the bit.

    gradients 0 | 3f2a91c4d05b | 18.904

A label, a hash of all that the line is about, and a number for people: the value, or the norm.
"""

import hashlib
import os

import torch

torch.manual_seed(0)
torch.set_num_threads(1)  # sums in one order

steps = 0


def show(label, *tensors):
    """One line about the values of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().contiguous().view(-1).view(torch.uint8)
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode() + bytes(values.tolist()))
    number = torch.cat([t.detach().double().reshape(-1) for t in tensors])
    number = number.item() if number.numel() == 1 else number.norm().item()
    print(f"{label} | {digest.hexdigest()[:12]} | {number:.6g}", flush=True)


def step(loss, tensors):
    """The backward of a loss, with nothing accumulated, and the lines of `report`."""
    tensors = list(tensors)
    for t in tensors:
        t.grad = None
    loss.backward()
    report(loss, tensors)


def report(loss, tensors):
    """A line about a loss, and one about the gradients that it has left."""
    global steps
    show(f"loss {steps}", loss)
    show(f"gradients {steps}", *(t.grad for t in tensors if t.grad is not None))
    steps += 1


def train(optimizer, objective, count):
    """So many steps of an optimiser, and their lines."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for _ in range(count):
        step(objective(), parameters)
        optimizer.step()


def compiled(function):
    """torch.compile where the setting asks for it."""
    return torch.compile(function) if os.environ.get("PROGRAM_COMPILED") else function
