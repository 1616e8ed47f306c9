"""Cells that are left out for good, each with the reason."""

import math
import platform

import torch

import clampgrad
from testing.matrix.forms import FORMS
from testing.releases import RELEASE

# Up to torch 2.11, eager mode ignores the bound of clamp(x, min=nan), and a transform does not.
IGNORES_NAN = not torch.zeros(1, device="cpu").clamp(min=math.nan).isnan()


WAIVERS = {
    "no integer holds the memory order of 16 dimensions: their gradients are contiguous": lambda cell: (
        cell.context == "strides of gradients" and any(len(a.shape) > 15 for a in cell.tensor_args)
    ),
    "torch.autograd.functional.jacobian has no vectorized form of an empty result": lambda cell: (
        cell.context == "vectorized jacobian" and cell.empty
    ),
    "the strides of a result without elements mean nothing": lambda cell: (
        cell.context in ("strides as torch's", "meta tensors") and cell.empty
    ),
    "PyTorch can neither vmap nor functionalize what is written through a view that overlaps itself, and counts it"
    " twice where it differentiates twice": lambda cell: (
        "overlapping" in cell.form
        and FORMS[cell.form].in_place
        and (
            cell.context in ("functionalize", "double backward")
            or cell.context.startswith("is_grads_batched")
            or cell.context.count("vjp") > 1
            or {"vmap", "vjp"} <= set(cell.context.split())
            or "compile" in cell.context
        )
    ),
    "PyTorch cannot vmap the backward of as_strided": lambda cell: (
        "overlapping" in cell.form and cell.context == "vectorized jacobian"
    ),
    "a NaN as the only bound of torch.clamp has an effect in some contexts only": lambda cell: (
        IGNORES_NAN
        and cell.form.startswith("module")
        and cell.operator in ("clamp_min", "clamp_max")
        and cell.args[1] != cell.args[1]
    ),
    "on arm64 the sign of a zero differs between the vectors and the scalars of torch.clamp"
    " ([Limits](support.md#gradients))": lambda cell: (
        cell.context == "signs of zeros" and platform.machine() in ("arm64", "aarch64")
    ),
    "the CPU kernels compare Tensors of bfloat16 as integers, for which no number is flushed"
    " ([Limits](support.md#gradients))": lambda cell: (
        cell.context == "subnormal numbers flushed"
        and "own" not in cell.form
        and clampgrad.implementation == "compiled"
        and not cell.numbers
        and any(a.dtype == "bfloat16" for a in cell.tensor_args)
    ),
    "CUDA's atomic additions, by which PyTorch adds up what overlaps, flush subnormal numbers": lambda cell: (
        "overlapping" in cell.form and torch.get_default_device().type == "cuda"
    ),
    "what overlaps itself is contiguous here": lambda cell: (
        "overlapping" in cell.form
        and cell.context in ("strides as torch's", "strides of gradients")
    ),
}


PORTABLE = clampgrad.implementation == "portable"

WAIVERS |= {
    "in place, the portable pin's gradients are not always in the memory order of the input"
    " ([Limits](support.md#the-portable-implementation))": lambda cell: (
        PORTABLE
        and cell.context == "strides of gradients"
        and FORMS[cell.form].pin
        and FORMS[cell.form].in_place
        and any(a.layout not in ("plain", "offset") for a in cell.tensor_args)
    ),
    "where a NaN as the only bound of torch.clamp has no effect, the portable implementation's with_grad and"
    " restoring give 0 ([Limits](support.md#the-portable-implementation))": lambda cell: (
        PORTABLE
        and IGNORES_NAN
        and cell.operator == "clamp"
        and cell.gradient in ("with_grad", "restoring")
        and {type(a) for a in cell.args[1:]} == {type(None), float}
        and any(a != a for a in cell.args[1:])
    ),
}

# Where a pin may raise an error instead: which cells, and the error.
REFUSED = {
    "TorchScript differentiates some graphs by rules of its own, and a pin raises an error there"
    " ([Limits](support.md#pins))": (
        lambda cell: FORMS[cell.form].pin and cell.context.startswith("TorchScript"),
        "clampgrad.pin: TorchScript differentiates this clamp",
    ),
    "before torch 2.15, a compiled graph may keep an input that it writes, and backward then raises PyTorch's error"
    " ([Limits](support.md#compilers-and-export))": (
        lambda cell: (
            RELEASE < (2, 15)
            and FORMS[cell.form].in_place
            and cell.context.startswith("compiled, ")
            # Otherwise backward gets a copy.
            and (RELEASE < (2, 13) or len(cell.tensor_args) > 1 or "vmap" in cell.context)
        ),
        "modified by an inplace operation",
    ),
    "selective checkpointing does not give an operator in place again that it has saved, which the portable"
    " pin asks for ([Limits](support.md#the-portable-implementation))": (
        lambda cell: (
            PORTABLE
            and cell.context == "checkpoint, selective"
            and FORMS[cell.form].pin
            and FORMS[cell.form].in_place
        ),
        "cached during selective activation checkpoint has been mutated",
    ),
}


def refused(cell, error):
    """Why a pin may answer the cell with this error, or None."""
    for reason, (covers, text) in REFUSED.items():
        if covers(cell) and text in str(error):
            return reason
    return None


def waived(cell):
    """The reason, or None."""
    return next((reason for reason, covers in WAIVERS.items() if covers(cell)), None)
