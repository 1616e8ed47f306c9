"""torch.func.functionalize has no rule for an autograd function. Ours write nothing: they run one level down."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch._C._functorch import TransformType

from clampgrad._implementation.portable.gate import Clamp, Pseudo
from clampgrad._torch.after_import import when_imported


def add_rule(autograd_function: ModuleType) -> None:
    rules = getattr(autograd_function.custom_function_call, "functorch_table", {})
    if TransformType.Functionalize not in rules:
        return  # a release that keeps it elsewhere, and goes on raising
    of_others = rules[TransformType.Functionalize]  # which raises

    def rule(interpreter: Any, function: Any, *args: Any, **keywords: Any) -> Any:
        if not issubclass(function, (Clamp, Pseudo)):
            return of_others(interpreter, function, *args, **keywords)
        from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

        level = FunctorchFunctionalizeAPI(interpreter)
        args = level.unwrap_tensors(args)
        with level.redispatch_to_next():
            result = function.apply(*args)
        return level.wrap_tensors(result)

    rules[TransformType.Functionalize] = rule


when_imported("torch._functorch.autograd_function", add_rule)
