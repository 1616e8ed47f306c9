"""Cells that are left out for good, each with the reason."""

import clampgrad
from matrix.forms import FORMS

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
    "torch.func.functionalize takes no operator in place that is not ATen's": lambda cell: (
        cell.context == "functionalize" and FORMS[cell.form].in_place and not FORMS[cell.form].pin
    ),
}


PORTABLE = clampgrad.implementation == "portable"

# What the pin does not reach, as docs/limits.md has it.
UNREACHED = {
    "a graph that was captured before keeps torch's own gradient under the portable pin"
    " ([Limits](limits.md#the-portable-implementation))": lambda cell: (
        PORTABLE and cell.context == "TorchScript, traced before the pin"
    ),
    "in place, the portable pin's gradients are not always in the memory order of the input"
    " ([Limits](limits.md#the-portable-implementation))": lambda cell: (
        PORTABLE
        and cell.context == "strides of gradients"
        and FORMS[cell.form].pin
        and FORMS[cell.form].in_place
        and any(a.layout not in ("plain", "offset") for a in cell.tensor_args)
    ),
}
WAIVERS |= UNREACHED

# Where a pin may raise an error instead: which cells, and the error.
REFUSED = {
    "TorchScript differentiates some graphs by rules of its own, and a pin raises an error there"
    " ([Limits](limits.md#pins))": (
        lambda cell: FORMS[cell.form].pin and cell.context.startswith("TorchScript"),
        "clampgrad.pin: TorchScript differentiates this clamp",
    ),
    "in place, torch.func.functionalize inside of a derivative is refused by the portable pin"
    " ([Limits](limits.md#compilers-and-export))": (
        lambda cell: (
            PORTABLE
            and cell.context == "functionalize"
            and FORMS[cell.form].pin
            and FORMS[cell.form].in_place
        ),
        "derivative for aten::copy is not implemented",
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
