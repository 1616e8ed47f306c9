"""convert, which makes the modules of a model save less for backward."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from clampgrad._torch.modules import OVERRIDE, bind_forward_again, replace_forwards, torchs_forward
from clampgrad.nn.bookkeeping import (
    FORWARD_IS_SET,
    Filter,
    Model,
    all_or_none,
    check_model,
    find_modules,
    format_none_found,
    format_skipped,
    restore,
    skip,
)
from clampgrad.nn.forward import ConvertedForward
from clampgrad.nn.modules import GradientModule
from clampgrad.nn.probe import Probe, probe_model

RESULT_IS_SAVED = (
    "it keeps its result, which most layers after it keep too; with example_inputs, it is "
    "converted where none does"
)


def convert(model: Model, *, filter_fn: Filter | None = None, example_inputs: Any = None) -> Model:
    """Makes the ReLU, ReLU6 and Hardtanh modules of a model save less for backward, in place.

    Values stay the same, and so do gradients, except at NaN: there they are 0, and torch's are g or
    0. A converted module stays the same object with the same class, name, hooks and state_dict; it
    only runs another function. Where a graph is captured for others (``torch.export``,
    ``torch.jit``, ``torch.fx.symbolic_trace``), it runs torch's own. Modules of
    ``clampgrad.nn`` save a bit per element already, and stay as they are.

    ReLU saves its result. Most layers after a ReLU save that too, so there is nothing to gain:
    without `example_inputs`, ReLU modules are left alone. With `example_inputs`, one forward of the
    model measures what each module saves, and those modules are converted that save less
    afterwards. That choice is for the model's present state: training or evaluation, device, dtype,
    what requires grad, checkpoints, autocast. If that changes, call `convert` again. The forward
    runs with hooks and side effects as any other, except that buffers and torch's random generators
    are restored, that nothing is compiled, and that no graph which the model keeps of it can be
    differentiated.

    The first call in a process replaces ``forward`` and ``extra_repr`` of torch.nn's ReLU, ReLU6
    and Hardtanh for the whole process (modules that are not converted run torch's own) and drops
    compiled code, which is then compiled again.

    Args:
        model: any module; it may itself be a ReLU, ReLU6 or Hardtanh.
        filter_fn: called with a module and its fully qualified name; only modules for which it
            returns True are converted. A shared module is converted if it does for one of its
            first 1000 names.
        example_inputs: a tuple of positional arguments of the model, a dict of keyword arguments,
            or one argument.

    Returns:
        The model itself. :func:`conversions` reports what changed, and :func:`undo` reverts it.

    Warns:
        UserWarning: there was no such module, or one was left alone because its `forward` is not
            torch's.

    Raises:
        TypeError: `model` is not a module.
        ValueError: the forward would initialise a lazy module (``nn.LazyLinear``).
        Exception: what the forward raises. After any error, the model is unchanged.

    Example::

        >>> clampgrad.nn.convert(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6()))
        Sequential(
          (0): Linear(in_features=2, out_features=2, bias=True)
          (1): ReLU6(gradient='min_norm')
        )
    """
    check_model(model, "convert")
    replace_forwards()
    modules = find_modules(model, torchs_forward, filter_fn)
    if not modules:
        advice = "where its code calls functions, call clampgrad's (clampgrad.relu6)"
        if any(isinstance(module, GradientModule) for module in model.modules()):
            advice = "those of clampgrad.nn keep one bit per element already"
        kinds = "ReLU, ReLU6 or Hardtanh of torch.nn"
        text = format_none_found("convert", kinds, model, filter_fn, advice)
        warnings.warn(text, stacklevel=2)
    convertible, reasons = [], {}
    with all_or_none(modules.values()):
        for name, module in modules.items():
            restore(module)
            if bind_forward_again(module):
                convertible.append(module)
            else:
                skip(module, FORWARD_IS_SET)
                reasons[name] = FORWARD_IS_SET
        if example_inputs is None:
            convert_by_class(convertible)
        else:
            convert_by_example(model, convertible, example_inputs)
        if reasons:
            warnings.warn(format_skipped("convert", reasons), stacklevel=2)
    return model


def convert_by_class(modules: list[nn.Module]) -> None:
    """Converts the modules that save their input."""
    for module in modules:
        if isinstance(module, nn.ReLU):
            skip(module, RESULT_IS_SAVED)
        else:
            setattr(module, OVERRIDE, ConvertedForward())


def convert_by_example(model: nn.Module, modules: list[nn.Module], example_inputs: Any) -> None:
    """Converts the modules that then save less, and notes in the others why they are left alone."""
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(example_inputs, Mapping):
        keywords = {**example_inputs}
    else:
        is_tuple = type(example_inputs) is tuple  # a PackedSequence is one argument
        args = example_inputs if is_tuple else (example_inputs,)
    probe = probe_model(model, modules, args, keywords)
    chosen = probe.choose_modules()
    for module in modules:
        if saved := chosen.get(module):
            setattr(module, OVERRIDE, ConvertedForward(saved.before - saved.after))
        else:
            skip(module, explain_skip(module, probe, {*chosen, module}))


def explain_skip(module: nn.Module, probe: Probe, converted: set[nn.Module]) -> str:
    saved = probe.count_bytes(converted)[module]
    if module not in probe.reached:
        return "the example does not reach it"
    if module in probe.unmeasured:
        return "it runs in torch.func or on a sparse tensor, where it cannot be measured"
    if not saved.after:
        return "it keeps nothing in the state of the example"
    if not saved.before:
        return "what it keeps is kept elsewhere, too"
    return f"it keeps {saved.before:,} bytes, and would keep {saved.after:,}"
