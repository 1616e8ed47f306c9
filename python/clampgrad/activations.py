"""relu, relu6 and hardtanh of torch.nn.functional, with the gradient as a keyword.

Values, dtypes and in-place forms are those of torch. On sparse, MKL-DNN and strided nested tensors,
torch's own function runs, whose gradient is 0 at a bound.
"""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from clampgrad._contract.table import CANONICAL, STRICT
from clampgrad._implementation import clamp_plain
from clampgrad._torch.torchs_functions import ACTIVATIONS
from clampgrad.functional import Gradient, clamp, clamp_, clamp_min, clamp_min_

__all__ = ["hardtanh", "relu", "relu6"]


def relu(
    input: Tensor,
    inplace: bool = False,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
) -> Tensor:
    """:func:`torch.nn.functional.relu` with a named gradient at 0.

    Args:
        input: a Tensor of any shape and real dtype.
        inplace: whether to write the result into `input`.
        gradient: the name or an alias of a convention; :func:`clampgrad.clamp` lists them.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).

    Returns:
        A Tensor of the shape and dtype of `input`; `input` itself if `inplace` is set.

    Raises:
        TypeError: `inplace` is the name of a convention.
        ValueError: the name of the convention is unknown.
        NotImplementedError: a gradient of a sparse, MKL-DNN or strided nested tensor is recorded,
            and the gradient of the convention is not 0 at a bound that is a number.

    Example::

        >>> x = torch.zeros(1, requires_grad=True)
        >>> torch.autograd.grad(clampgrad.relu(x, gradient="half"), x)
        (tensor([0.5000]),)
    """
    if not is_dynamo_compiling():
        result = clamp_plain(input, 0, None, inplace, gradient, maximize)
        if result is not None:
            return result
    check_flag(inplace)
    if _is_for_torch(input, gradient, maximize):
        return ACTIVATIONS.relu(input, inplace)
    function = clamp_min_ if inplace else clamp_min
    return function(input, 0, gradient=gradient, maximize=maximize)


def hardtanh(
    input: Tensor,
    min_val: float = -1.0,
    max_val: float = 1.0,
    inplace: bool = False,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
) -> Tensor:
    """:func:`torch.nn.functional.hardtanh` with a named gradient at its bounds, which are numbers.

    Arguments, result and errors are otherwise those of :func:`relu`.

    Raises:
        TypeError: a bound is a Tensor that has dimensions or requires grad;
            :func:`clampgrad.clamp` takes those.
        ValueError: `min_val` is greater than `max_val`.
    """
    if max_val is not None and not is_dynamo_compiling():
        result = clamp_plain(input, min_val, max_val, inplace, gradient, maximize)
        if result is not None:
            return result
    check_flag(inplace)
    if isinstance(min_val, Tensor) or isinstance(max_val, Tensor):
        min_val, max_val = _number(min_val), _number(max_val)
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if _is_for_torch(input, gradient, maximize):
        return ACTIVATIONS.hardtanh(input, min_val, max_val, inplace)
    function = clamp_ if inplace else clamp
    return function(input, min_val, max_val, gradient=gradient, maximize=maximize)


def relu6(
    input: Tensor,
    inplace: bool = False,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
) -> Tensor:
    """:func:`torch.nn.functional.relu6` with a named gradient at 0 and 6.

    Arguments, result and errors are otherwise those of :func:`relu`.
    """
    if not is_dynamo_compiling():
        result = clamp_plain(input, 0, 6, inplace, gradient, maximize)
        if result is not None:
            return result
    check_flag(inplace)
    if _is_for_torch(input, gradient, maximize):
        return ACTIVATIONS.relu6(input, inplace)
    function = clamp_ if inplace else clamp
    return function(input, 0, 6, gradient=gradient, maximize=maximize)


def check_flag(inplace: object) -> None:
    """Refuses a convention in the place of `inplace`: clamps take it as a keyword only."""
    if isinstance(inplace, str):
        raise TypeError(f"inplace is True or False; name a convention as gradient={inplace!r}")


def _number(bound: object) -> float:
    """Returns a bound as a number; torch accepts a Tensor without dimensions as one, too."""
    if isinstance(bound, Tensor):
        if bound.dim() or bound.requires_grad:
            raise TypeError(
                "a bound of hardtanh is a number, without dimensions or a gradient: call "
                "clampgrad.clamp"
            )
        return bound.item()
    return bound  # type: ignore[return-value]


def _is_for_torch(input: Tensor, gradient: Gradient, maximize: bool) -> bool:
    """Whether no gradient is recorded, or only torch's function accepts the layout."""
    if not isinstance(input, Tensor):
        return False  # clamp takes what stands for a tensor, and raises a TypeError for the rest
    strided = input.layout == torch.jagged or (
        input.layout == torch.strided and not input.is_nested
    )
    if strided and input.is_floating_point():
        return False
    clamp(torch.empty(0), 0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
    recorded = input.requires_grad and torch.is_grad_enabled()
    if recorded and CANONICAL.get(gradient) not in STRICT:
        layout = "nested" if input.is_nested else str(input.layout).removeprefix("torch.")
        raise NotImplementedError(
            f"gradient={gradient!r} of a {layout} tensor: torch's own function runs there, whose "
            f"gradient is 0 at a bound, as {' and '.join(map(repr, STRICT))} have it"
        )
    return True
