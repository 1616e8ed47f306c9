"""Cells that are left out for good, each with the reason."""

from matrix.cells import Arg
from matrix.forms import FORMS


def empty(cell):
    return any(isinstance(a, Arg) and 0 in a.shape for a in cell.args)


def many_dimensions(cell):
    return any(isinstance(a, Arg) and len(a.shape) > 15 for a in cell.args)


WAIVERS = {
    "no integer holds the memory order of 16 dimensions: their gradients are contiguous": lambda cell: (
        cell.context == "strides of gradients" and many_dimensions(cell)
    ),
    "torch.autograd.functional.jacobian has no vectorized form of an empty result": lambda cell: (
        cell.context == "vectorized jacobian" and empty(cell)
    ),
    "the strides of a result without elements mean nothing": lambda cell: (
        cell.context in ("strides as torch's", "meta tensors") and empty(cell)
    ),
    "torch has no batching rule for _foreach_clamp and its kind": lambda cell: (
        cell.form == "pinned foreach" and "vmap" in cell.context
    ),
    "torch.func.functionalize takes no operator in place that is not ATen's": lambda cell: (
        cell.context == "functionalize" and FORMS[cell.form].in_place and not FORMS[cell.form].pin
    ),
}


def waived(cell):
    """The reason, or None."""
    return next((reason for reason, covers in WAIVERS.items() if covers(cell)), None)
