"""Replaces attributes of torch: checked before the first is replaced, together or not at all, and
only once.

A replacement holds the function of torch that it replaces, and is marked as one. So a
second import of this package, or a first pin that is tried again, replaces torch's own
function and does not wrap a wrapper.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from clampgrad._torch.private_names import unsupported

Function: TypeAlias = Callable[..., Any]

# The mark: an attribute (the replacement, torch's own). functools.wraps copies it to what wraps a
# replacement, which is told apart by the first of the two.
REPLACES = "_clampgrad_replaces"
ABSENT = object()


class Replacement(NamedTuple):
    """An attribute of an object in torch, and the value that replaces its own."""

    owner: Any
    name: str
    value: Any


def mark_replacement(torchs: Callable[..., Any]) -> Callable[[Function], Function]:
    """Returns a decorator for a function that replaces one of torch."""

    def decorate(function: Function) -> Function:
        replacement = functools.update_wrapper(function, torchs)
        setattr(replacement, REPLACES, (replacement, torchs))
        return replacement

    return decorate


def original(function: Function) -> Function:
    """Returns the function of torch that `function` replaces, or `function` itself."""
    replacement, torchs = getattr(function, REPLACES, (None, function))
    return torchs if replacement is function else function


# ---- Checked -------------------------------------------------------------------------------------


def expect(function: Function, *parameters: str) -> None:
    """Raises RuntimeError if the parameters of a function of torch are not those."""
    if (actual := tuple(inspect.signature(function).parameters)) != parameters:
        raise unsupported(f"{qualified_name(function)} takes {actual}, not {parameters}")


def expect_first(function: Function, parameter: str) -> None:
    """Raises RuntimeError if that is not the first parameter of a function of torch."""
    if next(iter(inspect.signature(function).parameters), None) != parameter:
        raise unsupported(f"{qualified_name(function)} does not take {parameter!r} first")


def expect_to_take(count: int, function: Function) -> None:
    """Raises RuntimeError if a function of torch cannot be called with
    so many positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise unsupported(f"{qualified_name(function)}: {error}") from None


def expect_attribute(thing: Any, name: str) -> Any:
    """Returns the attribute, or raises a RuntimeError that says what is missing."""
    if not hasattr(thing, name):
        raise unsupported(f"{thing!r} has no {name}")
    return getattr(thing, name)


def qualified_name(function: Function) -> str:
    return f"{function.__module__}.{function.__qualname__}"


# ---- Made ----------------------------------------------------------------------------------------


@contextmanager
def apply_replacements(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Makes the replacements, and undoes them if one or the block fails."""
    before: list[Replacement] = []
    try:
        for owner, name, value in replacements:
            before.append(Replacement(owner, name, vars(owner).get(name, ABSENT)))
            setattr(owner, name, value)
        yield
    except BaseException:
        for owner, name, value in reversed(before):
            if value is not ABSENT:
                setattr(owner, name, value)
            elif name in vars(owner):  # unless it was the setting of it that failed
                delattr(owner, name)
        raise
