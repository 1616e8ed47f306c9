"""What `convert` and `set_gradient` note in the modules that they change: to report it, and to take
it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from clampgrad._torch.modules import FORWARD_SLOTS, OVERRIDE, bind_forward_again, modules_of
from clampgrad.nn.forward import ConvertedForward
from clampgrad.nn.modules import OUR_CLASS

Model = TypeVar("Model", bound=nn.Module)
Filter = Callable[[nn.Module, str], bool]

# Attributes of a module: its class and gradient before its class was changed, and why it was left
# alone.
ORIGINAL_CLASS = "_clampgrad_was"
SKIP_REASON = "_clampgrad_left"
# What may change of a module, beside its class.
CHANGED = (ORIGINAL_CLASS, SKIP_REASON, OVERRIDE, "gradient", "maximize", *FORWARD_SLOTS)

# How many names of a shared module a filter is called with at most.
NAMES_PER_MODULE = 1000

FORWARD_IS_SET = "a forward of its own was set on the instance"
IS_SCRIPTED = "torch.jit has compiled it; change the model before that"


def check_model(model: object, function: str) -> None:
    """Raises a TypeError, which says what to do, if the model is not a module."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type):
        raise TypeError(
            f"{function}: model must be an instance of a module, not the class {model.__name__}"
        )
    raise TypeError(f"{function}: model must be a torch.nn.Module, not {type(model).__name__}")


def find_modules(
    model: nn.Module, is_wanted: Callable[[nn.Module], Any], filter_fn: Filter | None
) -> dict[str, nn.Module]:
    """Returns the wanted modules that the filter accepts, by name: a shared one once, with the
    first name that is accepted."""
    wanted = {module: name for name, module in model.named_modules() if is_wanted(module)}
    if filter_fn is not None:
        wanted = find_accepted(model, {*wanted}, filter_fn)
    return {name: module for module, name in wanted.items()}


def find_accepted(
    model: nn.Module, wanted: set[nn.Module], filter_fn: Filter
) -> dict[nn.Module, str]:
    """Returns the first name of each of the modules that the filter accepts.

    A shared module has a name for every path that leads to it, and of these there may be
    exponentially many. So a module in which the filter has nothing left to decide is not entered
    again, and no module is entered by more than its first `NAMES_PER_MODULE` names.
    """
    accepted: dict[nn.Module, str] = {}
    decided: set[nn.Module] = set()
    names_entered: Counter[nn.Module] = Counter()

    def enter(module: nn.Module, name: str, parents: tuple[nn.Module, ...]) -> None:
        names_entered[module] += 1
        if module in wanted and module not in accepted and filter_fn(module, name):
            accepted[module] = name
        children = {n: c for n, c in modules_of(module).items() if c is not None}
        for child_name, child in children.items():
            if child not in decided and child is not module and child not in parents:
                enter(child, f"{name}.{child_name}".lstrip("."), (*parents, module))
        is_accepted = module not in wanted or module in accepted
        is_decided = is_accepted and all(child in decided for child in children.values())
        if is_decided or names_entered[module] == NAMES_PER_MODULE:
            decided.add(module)

    enter(model, "", ())
    return accepted


def is_scripted(module: nn.Module) -> bool:
    """Whether torch.jit has compiled or traced what was a module that we change."""
    kinds = "ReLU", "ReLU6", "Hardtanh", "Clamp"
    return (
        isinstance(module, torch.jit.ScriptModule)
        and getattr(module, "original_name", None) in kinds
    )


def format_none_found(
    function: str, kinds: str, model: nn.Module, filter_fn: Filter | None, advice: str
) -> str:
    """Returns the warning of a function that found no module to change."""
    if any(map(is_scripted, model.modules())):
        advice = IS_SCRIPTED
    accepted = "that filter_fn accepts " if filter_fn else ""
    return f"clampgrad.nn.{function} found no {kinds} {accepted}in {type(model).__name__}: {advice}"


def skip(module: nn.Module, reason: str) -> None:
    """Notes in a module why it was left alone."""
    vars(module)[SKIP_REASON] = reason  # a traced module hands attributes on, so no setattr


def format_skipped(function: str, reasons: Mapping[str, str]) -> str:
    """Returns the warning about modules that were left alone, given the reason for each name."""
    texts = (f"{name or '(model)'}, because {reason}" for name, reason in reasons.items())
    return f"clampgrad.nn.{function} left alone {'; '.join(texts)}"


@contextmanager
def all_or_none(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restores the modules if the block raises, also a KeyboardInterrupt or a warning that is an
    error."""
    before = [(module, type(module), changed_attributes(module)) for module in modules]
    try:
        yield
    except BaseException:
        for module, original, attributes in before:
            module.__class__ = original
            for name in CHANGED:
                vars(module).pop(name, None)
            vars(module).update(attributes)
        raise


def changed_attributes(module: nn.Module) -> dict[str, Any]:
    return {name: vars(module)[name] for name in CHANGED if name in vars(module)}


def conversions(model: nn.Module) -> dict[str, str]:
    """Reports what :func:`convert` and :func:`set_gradient` did: for each module, by name, what it
    is now and how many bytes fewer it saves if that was measured, or why it was left alone."""
    check_model(model, "conversions")
    texts = {name: describe_conversion(module) for name, module in model.named_modules()}
    return {name: text for name, text in texts.items() if text}


def describe_conversion(module: nn.Module) -> str | None:
    values = vars(module)
    text = f"{type(module).__name__}({module.extra_repr()})"
    if ORIGINAL_CLASS in values:
        return f"{values[ORIGINAL_CLASS][0].__name__} -> {text}"
    if isinstance(override := values.get(OVERRIDE), ConvertedForward):
        fewer = override.fewer_bytes
        return text if fewer is None else f"{text}, which keeps {fewer:,} bytes fewer"
    return f"left alone: {values[SKIP_REASON]}" if SKIP_REASON in values else None


def undo(model: Model) -> Model:
    """Reverts every :func:`convert` and :func:`set_gradient` of a model, and returns the model.

    What :func:`convert` has replaced in the process stays replaced. A module to which a library has
    given a class since (``fully_shard``, ``parametrize``) keeps that one, with the gradient of
    torch's module but at NaN; undo the library's change first.
    """
    check_model(model, "undo")
    for module in model.modules():
        restore(module)
    return model


def restore(module: nn.Module) -> None:
    """Makes a module what it was before it was changed."""
    values = vars(module)
    values.pop(SKIP_REASON, None)
    values.pop(OVERRIDE, None)
    if ORIGINAL_CLASS not in values:
        return
    original, attributes = values[ORIGINAL_CLASS]
    for name in ("gradient", "maximize"):
        values.pop(name, None)
    values.update(attributes)
    present, replacement = type(module), OUR_CLASS.get(original)
    if replacement and present is not replacement and issubclass(present, replacement):
        # A library, such as fully_shard, has derived a class from ours since. The module keeps it,
        # with torch's gradient but at NaN, until undo is called where the library has undone that.
        return
    del values[ORIGINAL_CLASS]
    if present in (original, replacement):
        module.__class__ = original
        bind_forward_again(module, present.forward)
