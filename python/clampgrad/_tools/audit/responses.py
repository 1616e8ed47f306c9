"""Measures the gradient that a function returns for an element at each position."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clampgrad._tools.audit.calls import Call, Operands
from clampgrad._tools.audit.positions import BOUND_BITS, example_elements
from clampgrad._torch.quiet import quietly
from clampgrad._torch.surroundings import force_recording


class GradientResponse(NamedTuple):
    """The gradient of the input and of each bound, for a positive and for a negative g, as slope
    and constant of a function of |g|; [position, sign, argument] in float64."""

    slope: Tensor
    constant: Tensor


def probe_gradients(call: Call, function: Callable[..., Tensor]) -> GradientResponse:
    """Calls a function with an element at every position, and differentiates it."""
    with quietly(), force_recording():
        response = torch.zeros(2, 256, 2, 3, dtype=torch.float64)
        elements = {
            position: example
            for position, example in example_elements(*call.has_bound).items()
            if call.bound_bits in (None, position & BOUND_BITS)
        }
        for bounds in dict.fromkeys(str(e[1:]) for e in elements.values()):
            chosen = {p: e for p, e in elements.items() if str(e[1:]) == bounds}
            response[:, list(chosen)] = _probe(call, function, list(chosen.values()))
    return GradientResponse(*response)


def _probe(call: Call, function: Callable[..., Tensor], elements: list[Operands]) -> Tensor:
    """Returns [slope or constant, element, sign, argument] of elements with the same bounds."""

    def leaf(values: list[Any], which: int) -> Tensor:
        tensor = torch.tensor(values, dtype=call.dtype, device=call.device)
        return tensor.requires_grad_(call.differentiated[which])

    arguments: list[Any] = [leaf([e[0] for e in elements], 0)]
    for i, is_tensor in enumerate(call.are_tensors, 1):
        bound = elements[0][i]
        arguments.append(leaf([bound] * len(elements), i) if is_tensor else bound)
    differentiated = [i for i in range(3) if call.differentiated[i]]
    result = function(*arguments)
    response = torch.zeros(2, len(elements), 2, 3, dtype=torch.float64)
    for sign, unit in enumerate((1.0, -1.0)):
        # For g = 1 and g = 2: a part that doubles is proportional to g, one that
        # stays does not depend on it.
        one, two = (
            torch.autograd.grad(
                result,
                [arguments[i] for i in differentiated],
                torch.full_like(result, unit * size),
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for size in (1, 2)
        )
        for i, a, b in zip(differentiated, one, two):
            a, b = a.double().cpu(), b.double().cpu()
            response[:, :, sign, i] = torch.stack([b - a, 2 * a - b])
    return response
