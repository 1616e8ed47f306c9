"""clamp and related functions, with the gradient as a keyword.

Every function has the forward of the function of the same name in torch: the same values, dtypes,
strides and errors. :func:`clamp` documents the values of the keyword.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from clampgrad import _implementation
from clampgrad._contract.docstrings import filled
from clampgrad._contract.gradients import ExactGradient, Gradient
from clampgrad._contract.table import TABLE
from clampgrad._implementation.traced import call_operator
from clampgrad._torch.our_functions import bare_signature, document, introduce_functions

if TYPE_CHECKING:
    from typing import TypeAlias

Bound: TypeAlias = int | float | Tensor


def _documentation(function: Callable[..., Any]) -> str:
    """Returns its docstring, filled in from the contract. python -OO leaves docstrings out."""
    return filled(cleandoc(function.__doc__ or ""), function.__name__, TABLE)


def _call(name: str, *args: Any, **keywords: Any) -> Tensor:
    """Calls the operator where torch.compile traces, and else the portable function."""
    if is_dynamo_compiling():
        if "out" in keywords and keywords["out"] is None:
            del keywords["out"]
        return call_operator(name, *args, **keywords)
    return getattr(_implementation, name)(*args, **keywords)


# Compiled functions, and the functions in Python that torch.compile traces in place of them.
_PYTHON_TWINS: dict[Callable[..., Any], Callable[..., Any]] = {}
_F = TypeVar("_F", bound=Callable[..., Any])


def _replaced_by_compiled(function: _F) -> _F:
    """Decorates a function, whose body only runs in the portable implementation: returns the
    compiled function of that name, if there is one, with this documentation."""
    name = function.__name__
    if _implementation.name != "compiled":
        function.__doc__ = _documentation(function)
        _implementation.PUBLIC[name] = function  # what its pin and Tensor subclasses see
        return function
    compiled = getattr(_implementation, name)
    if compiled.__text_signature__ is None:
        # Python makes the signature of a builtin out of the first line.
        first = f"{name}{bare_signature(function)}\n--\n\n"
        document(compiled, first + _documentation(function))
    compiled.__module__ = __name__
    _PYTHON_TWINS[compiled] = function
    return compiled


@_replaced_by_compiled
def clamp(
    input: Tensor,
    min: Bound | None = None,
    max: Bound | None = None,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Clamps all elements into [min, max], like :func:`torch.clamp`, with a named gradient.

    The conventions, and what each does where an element x is at a bound or
    outside (g is the incoming gradient):

    {conventions}

    Those in ``clampgrad.PSEUDO`` are not derivatives of the forward; they are meant for
    optimisation. The page "Conventions" of the documentation has every case, and says where each
    convention comes from.

    Args:
        input: a Tensor of any shape and real dtype.
        min: the lower bound: a number, a Tensor that broadcasts with `input`, or None for no bound.
        max: the upper bound, likewise; it wins where ``min > max``. A number is a constant. A
            Tensor, including a Tensor with no dimensions, receives a gradient if it requires grad.
            With one number and one Tensor, the lower bound is applied first.
        gradient: the name or an alias of a convention. (Not related to the argument of the same
            name of `Tensor.backward`, which is the incoming gradient.)
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        out: the output tensor; as elsewhere in torch, it is not differentiable.

    Returns:
        A Tensor of the broadcast shape of `input` and the bounds, and of the dtype to which they
        promote. Bounds are compared after conversion to that dtype. A NaN stays a NaN.

    Raises:
        ValueError: `gradient` is unknown, or `maximize` is set with an exact convention.
        TypeError: `gradient` is not a str.
        RuntimeError: both bounds are None, or torch refuses the arguments: its own error.
        NotImplementedError: forward mode of `with_grad` or `restoring`, which are not
            linear in the incoming gradient.

    Example::

        >>> x = torch.tensor([0.0, 3.0, 6.0, 7.0], requires_grad=True)
        >>> clampgrad.clamp(x, 0, 6).sum().backward()
        >>> x.grad
        tensor([0., 1., 0., 0.])
    """
    return _call("clamp", input, min, max, gradient=gradient, maximize=maximize, out=out)


@_replaced_by_compiled
def clamp_(
    input: Tensor,
    min: Bound | None = None,
    max: Bound | None = None,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
) -> Tensor:
    """:func:`clamp` in place: writes the result into `input`, whose shape and
    dtype it keeps, and returns it.

    The arguments are those of :func:`clamp`, and so are the errors, and these.

    Raises:
        RuntimeError: the result does not fit into the shape or dtype of `input`, or `input` is a
            leaf that requires grad: torch's own errors.
    """
    return _call("clamp_", input, min, max, gradient=gradient, maximize=maximize)


@_replaced_by_compiled
def clamp_min(
    input: Tensor,
    min: Bound,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """:func:`clamp` with only a lower bound, a number or a Tensor, like :func:`torch.clamp_min`.

    Arguments, result and errors are those of :func:`clamp`.
    """
    return _call("clamp_min", input, min, gradient=gradient, maximize=maximize, out=out)


@_replaced_by_compiled
def clamp_min_(
    input: Tensor, min: Bound, *, gradient: Gradient = "min_norm", maximize: bool = False
) -> Tensor:
    """:func:`clamp_min` in place; returns `input`. The errors are those of :func:`clamp_`."""
    return _call("clamp_min_", input, min, gradient=gradient, maximize=maximize)


@_replaced_by_compiled
def clamp_max(
    input: Tensor,
    max: Bound,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """:func:`clamp` with only an upper bound, a number or a Tensor, like :func:`torch.clamp_max`.

    Arguments, result and errors are those of :func:`clamp`.
    """
    return _call("clamp_max", input, max, gradient=gradient, maximize=maximize, out=out)


@_replaced_by_compiled
def clamp_max_(
    input: Tensor, max: Bound, *, gradient: Gradient = "min_norm", maximize: bool = False
) -> Tensor:
    """:func:`clamp_max` in place; returns `input`. The errors are those of :func:`clamp_`."""
    return _call("clamp_max_", input, max, gradient=gradient, maximize=maximize)


def clamp_with_grad(
    input: Tensor,
    min: Bound | None = None,
    max: Bound | None = None,
    *,
    maximize: bool = False,
) -> Tensor:
    """:func:`clamp` with ``gradient="with_grad"``, under the name that the community uses.

    For finite gradients, it equals the ``ClampWithGrad`` of many notebooks,
    ``grad * (grad * (x - clamp(x)) >= 0)``. It selects instead of multiplying, so no product
    underflows and no infinity becomes NaN. Arguments, result and errors are those of :func:`clamp`.
    """
    return clamp(input, min, max, gradient="with_grad", maximize=maximize)


clip = clamp
clip_ = clamp_


@_replaced_by_compiled
def maximum(
    input: Tensor,
    other: Tensor,
    *,
    gradient: ExactGradient = "min_norm",
    out: Tensor | None = None,
) -> Tensor:
    """Computes the elementwise maximum, like :func:`torch.maximum`, with a named gradient.

    What the arguments, x and y, receive of the gradient at a tie and at a NaN:

    {ties}

    At a tie, `min_norm` gives 0 to both if one of them is a constant, so that freezing one
    changes the gradient of the other.

    Args:
        input: a Tensor of any shape and real dtype.
        other: a Tensor of a real dtype, whose shape broadcasts with that of `input`.
        gradient: one of ``clampgrad.EXACT``, or an alias; :func:`clamp` lists them.
        out: the output tensor; as elsewhere in torch, it is not differentiable.

    Returns:
        A Tensor of the broadcast shape and the promoted dtype. A NaN on either side is the result.

    Raises:
        ValueError: `gradient` is unknown, or not an exact convention.
        TypeError: `gradient` is not a str, or `other` is not a Tensor.
        RuntimeError: torch refuses the arguments, such as shapes that
            do not broadcast: its own error.

    Example::

        >>> x = torch.zeros(1, requires_grad=True)
        >>> clampgrad.maximum(x, torch.zeros(1)).sum().backward()  # F.relu at 0
        >>> x.grad
        tensor([0.])
    """
    return _call("maximum", input, other, gradient=gradient, out=out)


@_replaced_by_compiled
def minimum(
    input: Tensor,
    other: Tensor,
    *,
    gradient: ExactGradient = "min_norm",
    out: Tensor | None = None,
) -> Tensor:
    """Computes the elementwise minimum, like :func:`torch.minimum`, with a named gradient.

    Arguments, result, errors and what happens at a tie or a NaN are those of :func:`maximum`.
    """
    return _call("minimum", input, other, gradient=gradient, out=out)


@_replaced_by_compiled
def fmax(
    input: Tensor,
    other: Tensor,
    *,
    gradient: ExactGradient = "min_norm",
    out: Tensor | None = None,
) -> Tensor:
    """:func:`maximum`, but where one side is NaN the other is the result, like :func:`torch.fmax`.

    There the other side has the whole gradient. At a tie, and where both are NaN, x and y receive:

    {ties}

    Arguments and errors are those of :func:`maximum`, and so is what
    `min_norm` does beside a constant.
    """
    return _call("fmax", input, other, gradient=gradient, out=out)


@_replaced_by_compiled
def fmin(
    input: Tensor,
    other: Tensor,
    *,
    gradient: ExactGradient = "min_norm",
    out: Tensor | None = None,
) -> Tensor:
    """:func:`minimum`, but where one side is NaN the other is the result, like :func:`torch.fmin`.

    Its gradients at a tie and at a NaN are those of :func:`fmax`; arguments and
    errors, those of :func:`maximum`.
    """
    return _call("fmin", input, other, gradient=gradient, out=out)


_SCRIPTED: list[Callable[..., Any]]
_SCRIPTED = [clamp, clamp_, clamp_min, clamp_min_, clamp_max, clamp_max_, clamp_with_grad]
_SCRIPTED += [maximum, minimum, fmax, fmin]

introduce_functions(_PYTHON_TWINS, _SCRIPTED)
