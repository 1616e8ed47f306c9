"""What torch.compile and other tracers get for a call: the overload of an operator that fits the bounds."""

from typing import Any

import torch
from torch import Tensor

from clampgrad._contract.table import CANONICAL

_ops = torch.ops.clampgrad


def traced(name: str, input: Tensor, *bounds: Any, **keywords: Any) -> Tensor:
    """A call of the function `name` as one of an operator, of the overload that fits the bounds."""
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
    """A scalar of NumPy is a number, and Dynamo takes it for a Tensor whose value it does not know.

    So it becomes a Tensor of the dtype that it would be rounded to. A constant Tensor gets the gradient of a
    number under every convention but joint; there min_norm is called, which treats constant Tensors as joint
    treats numbers. Beside a Tensor it becomes a number that is read while the graph runs.
    """
    scalars = all(b.ndim == 0 for b in bounds if _is_of_numpy(b))
    if not scalars or any(isinstance(b, Tensor) for b in bounds):
        return tuple(b.item() if _is_of_numpy(b) else b for b in bounds), keywords

    def rounded(bound: Any) -> Tensor:
        tensor = torch.as_tensor(bound)
        promotes = tensor.is_floating_point() and not input.is_floating_point()
        return tensor.to(input.device, torch.get_default_dtype() if promotes else input.dtype)

    gradient = keywords["gradient"]
    gradient = "min_norm" if CANONICAL.get(gradient) == "joint" else gradient
    tensors = tuple(None if b is None else rounded(b) for b in bounds)
    return tensors, keywords | {"gradient": gradient}
