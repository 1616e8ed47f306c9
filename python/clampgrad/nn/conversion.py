"""convert, which gives the modules of a model a named gradient, and what
tells of it and takes it back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clampgrad._contract.table import CANONICAL, STRICT
from clampgrad._implementation import clamp_plain
from clampgrad._torch.modules import (
    REACHED,
    bind_forward_again,
    change_modules,
    modules_of,
    torchs_forward,
)
from clampgrad.activations import hardtanh, relu
from clampgrad.functional import Gradient
from clampgrad.nn.kept import Probe, probed
from clampgrad.nn.modules import Clamp, Hardtanh, Named, ReLU, ReLU6

Model = TypeVar("Model", bound=nn.Module)

TWINS: dict[type[nn.Module], type[Named]] = {
    nn.ReLU: ReLU,
    nn.ReLU6: ReLU6,
    nn.Hardtanh: Hardtanh,
}

# Attributes of a module: its class and gradient before its class was
# changed, and why it was left alone.
WAS = "_clampgrad_was"
LEFT = "_clampgrad_left"

FORWARD_IS_SET = "a forward of its own was set on the instance"
IS_FUSED = "torch.ao.quantization has fused its ReLU with other layers"
SCRIPTED = "ReLU", "ReLU6", "Hardtanh", "Clamp"
IS_SCRIPTED = "torch.jit has compiled it; convert the model before"
RESULT_IS_KEPT = (
    "it keeps its result, which most layers after it keep too; with example_inputs, it is "
    "converted where none does"
)


def ours(module: Any, input: Tensor, inplace: bool, gradient: Gradient) -> Tensor:
    """What a ReLU, ReLU6 or Hardtanh of torch computes, by the function of this package."""
    if isinstance(module, nn.ReLU):
        return relu(input, inplace, gradient=gradient)
    return hardtanh(input, module.min_val, module.max_val, inplace, gradient=gradient)


class Instead:
    """What a module of torch runs once it is converted: a function of this package,
    which keeps a bit per element.

    torch's module holds it, so it is saved with the module, and loading it imports this package.
    """

    def __init__(self, gradient: Gradient, fewer_bytes: int | None = None) -> None:
        self.gradient = gradient
        self.fewer_bytes = fewer_bytes  # as measured, if it was
        change_modules()

    def __call__(self, module: Any, input: Tensor) -> Tensor:
        # For torch's own relu, a compiler keeps nothing but the result; for ours in place, a mask.
        if isinstance(module, nn.ReLU) and torch.compiler.is_compiling():
            return F.relu(input, module.inplace)
        return ours(module, input, module.inplace, self.gradient)

    def plain(self, module: Any, input: Tensor) -> Tensor | None:
        if isinstance(module, nn.ReLU):
            return clamp_plain(input, 0, None, module.inplace, self.gradient, False)
        lo, hi = module.min_val, module.max_val
        if hi is None:  # which torch refuses
            return None
        return clamp_plain(input, lo, hi, module.inplace, self.gradient, False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Instead, (self.gradient, self.fewer_bytes)

    def words(self) -> str:
        return f"gradient={self.gradient!r}"


def convert(
    model: Model,
    gradient: Gradient = "min_norm",
    *,
    maximize: bool = False,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
    example_inputs: Any = None,
) -> Model:
    """Gives the ReLU, ReLU6, Hardtanh and Clamp modules of a model a named gradient, in place.

    The default, `min_norm`, has the gradients of torch's modules (except at NaN) and reduces what
    they keep for backward. A converted module stays the same object with the same class, name,
    hooks and state_dict; it only runs another function. Where a graph is captured for others
    (``torch.export``, ``torch.jit``, ``torch.fx.symbolic_trace``), it runs torch's own. ReLU keeps
    its result. Most layers after a ReLU keep that too, so there is nothing to gain: without
    `example_inputs`, ReLU modules are left alone.

    With `example_inputs`, one forward of the model measures what each module keeps, and those
    modules are converted that keep less afterwards. That choice is for the state in which the model
    is: its mode (training or evaluation), device, dtype, what requires grad, checkpoints, and
    autocast around this call. If that changes, call `convert` again. The forward runs with hooks
    and side effects as any other, except that buffers and the states of torch's default random
    generators are restored, and that no graph which the model keeps of it can be differentiated.

    Under a convention whose gradient at a bound is another one than torch's, which is 0, every
    module is converted and its class changes to that of this package, because its gradient must not
    be lost where a library replaces or reads modules by their class: ``torch.jit.script``,
    ``torch.ao.quantization.fuse_modules`` and others raise an error. Modules whose class derives
    from torch's are left alone then, with a warning.

    Function calls inside a `forward` (`F.relu`, `torch.clamp`) are not modules and are not
    converted; use :class:`clampgrad.pin` for those of the clamp family.

    Args:
        model: any module; it may itself be a ReLU, ReLU6, Hardtanh or Clamp.
        gradient: the name or an alias of a convention.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        filter_fn: called with a module and its fully qualified name; only modules for which it
            returns True are converted. A shared module is converted if it does for one of its
            names.
        example_inputs: a tuple of positional arguments of the model, a dict of
            keyword arguments, or one argument.

    Returns:
        The model itself. :func:`conversions` reports what changed, and :func:`undo` reverts it.

    Warns:
        UserWarning: there was no module to convert; or one was left alone because its `forward` is
            not torch's, or, under another convention than torch's, because its class is not, or
            because it is fused with others, scripted or traced.

    Raises:
        TypeError: `model` is not a module.
        ValueError: the name of the convention is unknown; or there are `example_inputs`, and the
            gradient of the convention is not 0 at a bound, or the forward of the example would
            initialise a lazy module (``nn.LazyLinear``). The model is then unchanged.
        Exception: what the forward of the example raises. The model is then unchanged.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6())
        >>> clampgrad.nn.convert(model)
        Sequential(
          (0): Linear(in_features=2, out_features=2, bias=True)
          (1): ReLU6(gradient='min_norm')
        )
        >>> type(model[1])
        <class 'torch.nn.modules.activation.ReLU6'>
        >>> model = clampgrad.nn.convert(model, gradient="inclusive")
        >>> clampgrad.nn.conversions(model)
        {'1': "ReLU6 -> ReLU6(gradient='inclusive')"}
        >>> clampgrad.nn.undo(model)[1]
        ReLU6()
    """
    check_module(model, "convert")
    Clamp(0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
    name_of_gradient: Any = CANONICAL[gradient]
    is_torchs = name_of_gradient in STRICT
    if example_inputs is not None and not is_torchs:
        raise ValueError(
            f"convert: example_inputs choose modules by what they keep, and gradient={gradient!r} "
            "changes gradients, so it is for all of them"
        )
    change_modules()
    chosen = dict(accepted(model, partial(is_convertible, to_torchs=is_torchs), filter_fn))
    if not chosen:
        warnings.warn(
            "clampgrad.nn.convert found no ReLU, ReLU6, Hardtanh or Clamp "
            f"{'that filter_fn accepts ' if filter_fn else ''}in {type(model).__name__}: {why_none(model)}",
            stacklevel=2,
        )
    before = [(module, state_of(module)) for module in chosen.values()]
    of_torch, left_alone = [], {}
    try:
        for name, module in chosen.items():
            restore(module)
            if isinstance(module, Named) or not is_torchs:
                why = rename(module, gradient, maximize)
            elif bind_forward_again(module):
                why = None
                of_torch.append(module)
            else:
                why = FORWARD_IS_SET
            if why:
                left_alone[name] = why
                vars(module)[LEFT] = why  # a traced module hands attributes on
        choose(model, of_torch, name_of_gradient, example_inputs)
        if left_alone:
            reasons = (f"{name or '(model)'}, because {why}" for name, why in left_alone.items())
            warnings.warn(f"clampgrad.nn.convert left alone {'; '.join(reasons)}", stacklevel=2)
    except BaseException:  # also a warning that is an error
        for module, state in before:
            put_back(module, state)
        raise
    return model


def check_module(model: object, name: str) -> None:
    """Raises TypeError, with what to do instead, if it is not a module."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type):
        raise TypeError(
            f"{name}: model must be an instance of a module, not the class {model.__name__}"
        )
    raise TypeError(f"{name}: model must be a torch.nn.Module, not {type(model).__name__}")


def why_none(model: nn.Module) -> str:
    """Why there may be nothing to convert in a model, and what to do instead."""
    if any(map(is_scripted, model.modules())):
        return IS_SCRIPTED
    return (
        "where its code calls functions, call clampgrad's (clampgrad.relu6), or use clampgrad.pin "
        "for torch.clamp"
    )


def accepted(
    model: nn.Module,
    wanted: Callable[[nn.Module], bool],
    filter_fn: Callable[[nn.Module, str], bool] | None,
) -> Iterator[tuple[str, nn.Module]]:
    """The wanted modules that the filter accepts: a shared one once, with the first name that is
    accepted."""
    found = set()
    for name, module in model.named_modules() if filter_fn is None else paths(model):
        if module not in found and wanted(module) and (not filter_fn or filter_fn(module, name)):
            found.add(module)
            yield name, module


def paths(
    module: nn.Module, prefix: str = "", above: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[str, nn.Module]]:
    """The module and those in it with their names; a shared one with each of its names."""
    yield prefix, module
    for name, child in modules_of(module).items():
        if child is not None and child is not module and child not in above:
            yield from paths(child, f"{prefix}.{name}".lstrip("."), (*above, module))


def is_convertible(module: nn.Module, to_torchs: bool) -> bool:
    """Whether `convert` looks at the module. Another gradient than torch's must not be dropped in
    silence, so then it also looks at what it cannot convert."""
    if isinstance(module, Named) or torchs_forward(module):
        return True
    return not to_torchs and (
        isinstance(module, (nn.ReLU, nn.Hardtanh))
        or holds_fused_relu(module)
        or is_scripted(module)
    )


def is_scripted(module: nn.Module) -> bool:
    """Whether it was a module that we convert before torch.jit compiled or traced it."""
    name = getattr(module, "original_name", None)
    return isinstance(module, torch.jit.ScriptModule) and name in SCRIPTED


def holds_fused_relu(module: nn.Module) -> bool:
    """Whether it is a module of training that computes a ReLU for which
    there is no module any more."""
    of = type(module)
    return of.__module__.startswith("torch.ao.nn.intrinsic.qat.") and "ReLU" in of.__name__


def rename(module: nn.Module, gradient: Gradient, maximize: bool) -> str | None:
    """Gives a module the gradient of that name and, if it does not have it yet, our
    class. Returns why, if it cannot."""
    if holds_fused_relu(module):
        return IS_FUSED
    if is_scripted(module):
        return IS_SCRIPTED
    ours = type(module) if isinstance(module, Named) else TWINS.get(type(module))
    if ours is None:
        return f"its class, {type(module).__name__}, derives from torch's"
    named = {k: v for k, v in vars(module).items() if k in ("gradient", "maximize")}
    vars(module)[WAS] = type(module), named
    module.__class__ = ours
    if not bind_forward_again(module):
        restore(module)
        return FORWARD_IS_SET
    ours._name(module, gradient, maximize)
    return None


def choose(
    model: nn.Module, modules: list[nn.Module], gradient: Gradient, example_inputs: Any
) -> None:
    """Converts those modules of torch that keep less then, and notes on
    the others why they are left."""
    if example_inputs is None:
        for module in modules:
            if isinstance(module, nn.ReLU):
                setattr(module, LEFT, RESULT_IS_KEPT)
            else:
                module._clampgrad = Instead(gradient)
        return
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(example_inputs, Mapping):
        keywords = {**example_inputs}
    else:
        is_tuple = type(example_inputs) is tuple  # a PackedSequence is one argument
        args = example_inputs if is_tuple else (example_inputs,)

    # What it keeps is the same in place.
    probe = probed(model, modules, partial(ours, inplace=False, gradient=gradient), args, keywords)
    converted = probe.chosen()
    for module in modules:
        if kept := converted.get(module):
            module._clampgrad = Instead(gradient, kept.torchs - kept.ours)
        else:
            setattr(module, LEFT, why_left(module, probe, {*converted, module}))


def why_left(module: nn.Module, probe: Probe, converted: set[nn.Module]) -> str:
    kept = probe.kept(converted)[module]
    if module not in probe.reached:
        return "the example does not reach it"
    if module in probe.unknown:
        return "it runs in torch.func or on a sparse tensor, where it cannot be measured"
    if not kept.ours:
        return "it keeps nothing in the state of the example"
    if not kept.torchs:
        return "what it keeps is kept elsewhere, too"
    return f"it keeps {kept.torchs:,} bytes, and would keep {kept.ours:,}"


def conversions(model: nn.Module) -> dict[str, str]:
    """Reports what :func:`convert` did: for each module, by name, what it is now and how many bytes
    fewer it keeps if that was measured, or why it was left alone."""
    check_module(model, "conversions")
    return {name: text for name, module in model.named_modules() if (text := described(module))}


def described(module: nn.Module) -> str | None:
    own = vars(module)
    if WAS in own:
        was, _ = own[WAS]
        return f"{was.__name__} -> {type(module).__name__}({module.extra_repr()})"
    if isinstance(instead := own.get("_clampgrad"), Instead):
        fewer = instead.fewer_bytes
        text = f"{type(module).__name__}({module.extra_repr()})"
        return text if fewer is None else f"{text}, which keeps {fewer:,} bytes fewer"
    return f"left alone: {own[LEFT]}" if LEFT in own else None


def undo(model: Model) -> Model:
    """Reverts every :func:`convert` of a model, and returns the model."""
    check_module(model, "undo")
    for module in model.modules():
        restore(module)
    return model


def restore(module: nn.Module) -> None:
    own = vars(module)
    own.pop(LEFT, None)
    own.pop("_clampgrad", None)
    if WAS not in own:
        return
    was, named = own.pop(WAS)
    for key in ("gradient", "maximize"):
        own.pop(key, None)
    own.update(named)
    ours = type(module)
    if ours in (was, TWINS.get(was)):
        module.__class__ = was
        bind_forward_again(module, ours.forward)
    # Else somebody, fully_shard perhaps, has derived a class from ours since: it
    # stays, with torch's gradient.


# What a conversion may change of a module, beside its class.
STATE = (WAS, LEFT, "_clampgrad", "gradient", "maximize", *REACHED)


def state_of(module: nn.Module) -> tuple[type, dict[str, Any]]:
    return type(module), {key: vars(module)[key] for key in STATE if key in vars(module)}


def put_back(module: nn.Module, state: tuple[type, dict[str, Any]]) -> None:
    module.__class__, attributes = state
    for key in STATE:
        vars(module).pop(key, None)
    vars(module).update(attributes)
