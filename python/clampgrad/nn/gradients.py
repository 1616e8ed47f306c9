"""set_gradient, which gives the modules of a model a named gradient."""

from __future__ import annotations

import warnings

from torch import nn

from clampgrad._torch.modules import bind_forward_again, torchs_forward
from clampgrad.functional import Gradient
from clampgrad.nn.bookkeeping import (
    FORWARD_IS_SET,
    IS_SCRIPTED,
    ORIGINAL_CLASS,
    Filter,
    Model,
    all_or_none,
    check_model,
    find_modules,
    format_none_found,
    format_skipped,
    is_scripted,
    restore,
    skip,
)
from clampgrad.nn.modules import OUR_CLASS, Clamp, GradientModule

IS_FUSED = "torch.ao.quantization has fused its ReLU with other layers"


def set_gradient(
    model: Model,
    gradient: Gradient,
    *,
    maximize: bool = False,
    filter_fn: Filter | None = None,
) -> Model:
    """Gives the ReLU, ReLU6, Hardtanh and Clamp modules of a model a named gradient, in place.

    Modules of torch.nn change their class to that of ``clampgrad.nn``; they stay the same
    objects with the same name, hooks and state_dict. The class changes so that the gradient is not
    lost without a word: where a library replaces or reads modules by their class
    (``torch.jit.script``, ``torch.ao.quantization.fuse_modules``), it raises an error. Modules
    whose class derives from torch's are left alone, with a warning.

    Function calls inside a `forward` (`F.relu`, `torch.clamp`) are not modules and stay as they
    are; use :class:`clampgrad.pin` for those of the clamp family. Nothing changes for other models
    in the process.

    Args:
        model: any module; it may itself be a ReLU, ReLU6, Hardtanh or Clamp.
        gradient: the name or an alias of a convention; :func:`clampgrad.clamp` lists them.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        filter_fn: called with a module and its fully qualified name; only modules for which it
            returns True are changed. A shared module is changed if it does for one of its first
            1000 names.

    Returns:
        The model itself. :func:`conversions` reports what changed, and :func:`undo` reverts it.

    Warns:
        UserWarning: there was no such module; or one was left alone because its class or its
            `forward` is not torch's, or because it is fused with others, scripted or traced.

    Raises:
        TypeError: `model` is not a module.
        ValueError: the name of the convention is unknown. The model is then unchanged.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6())
        >>> model = clampgrad.nn.set_gradient(model, "inclusive")
        >>> clampgrad.nn.conversions(model)
        {'1': "ReLU6 -> ReLU6(gradient='inclusive')"}
        >>> clampgrad.nn.undo(model)[1]
        ReLU6()
    """
    check_model(model, "set_gradient")
    Clamp(0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
    modules = find_modules(model, has_gradient, filter_fn)
    if not modules:
        advice = (
            "where its code calls functions, call clampgrad's (clampgrad.relu6), or use "
            "clampgrad.pin for torch.clamp"
        )
        kinds = "ReLU, ReLU6, Hardtanh or Clamp"
        text = format_none_found("set_gradient", kinds, model, filter_fn, advice)
        warnings.warn(text, stacklevel=2)
    reasons = {}
    with all_or_none(modules.values()):
        for name, module in modules.items():
            restore(module)
            if reason := change_class(module, gradient, maximize):
                skip(module, reason)
                reasons[name] = reason
        if reasons:
            warnings.warn(format_skipped("set_gradient", reasons), stacklevel=2)
    return model


def has_gradient(module: nn.Module) -> bool:
    """Whether a user may expect `set_gradient` to change the module. It warns about those that it
    cannot change."""
    return (
        isinstance(module, (GradientModule, nn.ReLU, nn.Hardtanh))
        or torchs_forward(module) is not None
        or has_fused_relu(module)
        or is_scripted(module)
    )


def has_fused_relu(module: nn.Module) -> bool:
    """Whether it is a QAT module of torch.ao with a fused ReLU."""
    kind = type(module)
    return kind.__module__.startswith("torch.ao.nn.intrinsic.qat.") and "ReLU" in kind.__name__


def change_class(module: nn.Module, gradient: Gradient, maximize: bool) -> str | None:
    """Gives a module that gradient and, if needed, our class. Returns the reason if it cannot."""
    if has_fused_relu(module):
        return IS_FUSED
    if is_scripted(module):
        return IS_SCRIPTED
    kind = type(module)
    new = kind if isinstance(module, GradientModule) else OUR_CLASS.get(kind)
    if new is None:
        return f"its class, {kind.__name__}, derives from torch's"
    attributes = {k: v for k, v in vars(module).items() if k in ("gradient", "maximize")}
    # It is there already where undo had to leave it, because a library has derived a class.
    vars(module).setdefault(ORIGINAL_CLASS, (kind, attributes))
    module.__class__ = new
    if not bind_forward_again(module):
        restore(module)
        return FORWARD_IS_SET
    new._set_gradient(module, gradient, maximize)
    return None
