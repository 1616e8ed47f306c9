"""What the portable pin calls in place of torch's own functions, and what it does not reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from clampgrad._contract.table import PSEUDO
from clampgrad._implementation.portable.functions import PUBLIC, recorded
from clampgrad._torch.surroundings import is_of_transform


def spellings(name: str) -> Iterator[Any]:
    """What torch has of that name: functions, a method, an operator and its overloads."""
    for namespace in (F, torch, Tensor, torch.ops.aten):
        if function := getattr(namespace, name, None):
            yield function
    if packet := getattr(torch.ops.aten, name, None):
        yield from (getattr(packet, overload) for overload in packet.overloads())


# Functions of torch that are composed of a clamp or its kin (test/pin/test_pin_reach.py finds them).
COMPOSED = (
    *("normalize", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss"),
    *("triplet_margin_loss", "triplet_margin_with_distance_loss", "corrcoef"),
)
BY_ITSELF = {function: name for name in COMPOSED for function in spellings(name)}

PIN_MISSES = (
    "the portable implementation reaches the calls that a program makes in Python, and not those inside "
    f"torch's own functions ({', '.join(COMPOSED)}), of C++ extensions, TorchScript, graphs that were "
    "captured before, and threads that run already"
)


def refuse(name: str) -> None:
    """Raises, because a gradient is recorded that the pin should decide and does not."""
    raise RuntimeError(
        f"clampgrad.pin: the portable implementation does not reach the clamp inside {name}. Take the "
        "pin off around this call (`with clampgrad.pin(None)`), accept torch's own gradient there "
        "(partial=True), or use the compiled implementation"
    )


reached: Counter[str] = Counter()


def count(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call that the pin reaches. Dynamo would guard compiled code by the number."""
    if not is_compiling() and recorded((*args, *kwargs.values())):
        reached[f"aten::{name}"] += 1


def pin_reached() -> dict[str, int]:
    return dict(reached)


# ---- What is called in place of torch's own ------------------------------------------------------------

OPERATORS = type(torch.ops.aten.clamp), type(torch.ops.aten.clamp.default)


# torch's functions and methods take NumPy's names too.
NUMPYS = {"x": "input", "a": "input", "x1": "input", "x2": "other"}


def is_of_aten(func: Any) -> bool:
    return isinstance(func, OPERATORS) or "_foreach_" in func.__name__


def name_of(keyword: str, func: Any) -> str:
    if keyword == "self":
        return "input"
    return keyword if is_of_aten(func) else NUMPYS.get(keyword, keyword)


def torchs_own(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Operators of aten call their first argument self."""
    if "input" in kwargs and is_of_aten(func):
        kwargs["self"] = kwargs.pop("input")
    return func(*args, **kwargs)


def clamp(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        bounds = [b for b in (*args[1:], kwargs.get("min"), kwargs.get("max")) if b is not None]
        if len({isinstance(b, Tensor) for b in bounds}) == 2:
            # Beside a number torch takes a Tensor without a dimension for one, and no other.
            if any(isinstance(b, Tensor) and (b.dim() or b.requires_grad) for b in bounds):
                return torchs_own(func, *args, **kwargs)  # which raises
            args = args[:1] + tuple(map(number, args[1:]))
            kwargs = {k: b if k == "out" else number(b) for k, b in kwargs.items()}
        count(name, args, kwargs)
        return PUBLIC[name](*args, **kwargs, gradient=gradient, maximize=maximize)

    return call


def number(bound: Any) -> Any:
    return bound.item() if isinstance(bound, Tensor) else bound


def extremum(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        """torch.max with two Tensors is torch.maximum, and with anything else it is not."""
        given = dict(zip(("input", "other"), args)) | kwargs
        pair = isinstance(given.get("other"), Tensor) and set(given) <= {"input", "other", "out"}
        if gradient in PSEUDO or not pair:
            return torchs_own(func, *args, **kwargs)
        count(name, (), given)
        return PUBLIC[name](**given, gradient=gradient)

    return call


def is_differentiated(argument: Any) -> bool:
    """Whether a gradient may be recorded of it, here or at a level of torch.func, or a tangent."""
    return isinstance(argument, Tensor) and (
        (torch.is_grad_enabled() and (argument.requires_grad or is_of_transform(argument)))
        or fwad.unpack_dual(argument).tangent is not None
    )


def for_each(name: str) -> Callable[..., Any]:
    def call(func: Any, gradient: str, maximize: bool, *args: Any, **kwargs: Any) -> Any:
        """No pin reaches a list, and where a gradient is recorded it says so."""
        given = [*args, *kwargs.values()]
        each = [a for b in given for a in (b if isinstance(b, (list, tuple)) else [b])]
        if any(map(is_differentiated, each)) and ("clamp" in name or gradient not in PSEUDO):
            raise RuntimeError(
                "clampgrad.pin: no pin reaches a list of tensors. Call the operator for each of them, not "
                f"{name}, or take the pin off around this call (`with clampgrad.pin(None)`)"
            )
        return torchs_own(func, *args, **kwargs)

    return call


PINNED: dict[Any, Callable[..., Any]] = {}


def in_place_of(call: Callable[..., Any], *names: str) -> None:
    PINNED.update({function: call for name in names for function in spellings(name)})


for suffix in ("", "_"):
    in_place_of(clamp("clamp" + suffix), "clamp" + suffix, "clip" + suffix)
    for one in ("clamp_min", "clamp_max"):
        in_place_of(clamp(one + suffix), one + suffix)
    for one in ("clamp_min", "clamp_max", "maximum", "minimum"):
        in_place_of(for_each(f"aten::_foreach_{one}{suffix}"), f"_foreach_{one}{suffix}")
for one, other in {"maximum": "max", "minimum": "min", "fmax": "fmax", "fmin": "fmin"}.items():
    in_place_of(extremum(one), one, other)
