"""Traces a call as a call of the operator whose overload fits the bounds."""

from typing import Any

import torch
from torch import Tensor

from clampgrad._contract.table import BESIDE_CONSTANTS, CANONICAL

_ops = torch.ops.clampgrad


def call_operator(name: str, input: Tensor, *bounds: Any, **keywords: Any) -> Tensor:
    """Calls the operator for the function `name`, in the overload that fits the bounds."""
    operator = getattr(_ops, name)
    if not name.startswith("clamp"):
        overload = "out" if "out" in keywords else "default"
        return getattr(operator, overload)(input, *bounds, **keywords)
    maximize = keywords.get("maximize", False)
    if not isinstance(maximize, bool):  # as which the operator would take a number
        raise TypeError(f"argument 'maximize' must be bool, not {type(maximize).__name__}")
    if any(map(_is_of_numpy, bounds)):
        bounds, keywords = _without_numpy(input, bounds, keywords)
    kinds = ["Tensor" if isinstance(b, Tensor) else "Scalar" for b in bounds if b is not None]
    overload = "_".join(sorted(set(kinds), key=kinds.index)) if "Tensor" in kinds else ""
    overload += ("_out" if overload else "out") if "out" in keywords else ""
    return getattr(operator, overload or "default")(input, *bounds, **keywords)


def _is_of_numpy(bound: Any) -> bool:
    numbers = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return not isinstance(bound, (Tensor, *numbers)) and hasattr(bound, "ndim")


def _without_numpy(
    input: Tensor, bounds: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replaces scalars of NumPy, which Dynamo takes for Tensors whose value it does not know.

    A scalar becomes a constant Tensor of the dtype that it would be rounded to, under a convention
    that treats constant Tensors as the one that was asked for treats numbers: min_norm for
    joint, which would share a tie. Where there is none, and beside a Tensor, it becomes a number
    that is read while the graph runs.
    """
    scalars = all(b.ndim == 0 for b in bounds if _is_of_numpy(b))
    name = CANONICAL.get(keywords["gradient"], keywords["gradient"])
    gradient = BESIDE_CONSTANTS.get(name, name)
    if not scalars or gradient is None or any(isinstance(b, Tensor) for b in bounds):
        return tuple(b.item() if _is_of_numpy(b) else b for b in bounds), keywords

    def rounded(bound: Any) -> Tensor:
        tensor = torch.as_tensor(bound)
        promotes = tensor.is_floating_point() and not input.is_floating_point()
        return tensor.to(input.device, torch.get_default_dtype() if promotes else input.dtype)

    tensors = tuple(None if b is None else rounded(b) for b in bounds)
    return tensors, keywords | {"gradient": gradient}
