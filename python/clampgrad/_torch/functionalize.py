"""torch.func.functionalize has no rule for an autograd function. Ours run one level down, and write nothing there."""

from functools import partial
from types import ModuleType
from typing import Any

import torch

from clampgrad._torch.after_import import when_imported


def run_one_level_down(*ours: type[torch.autograd.Function]) -> None:
    when_imported("torch._functorch.autograd_function", partial(add_rule, ours))


def add_rule(ours: tuple[type, ...], autograd_function: ModuleType) -> None:
    functionalize = torch._C._functorch.TransformType.Functionalize
    rules = getattr(autograd_function.custom_function_call, "functorch_table", {})
    if functionalize not in rules:
        return  # a release that keeps it elsewhere, and goes on raising
    of_others = rules[functionalize]  # which raises

    def rule(interpreter: Any, function: Any, *args: Any, **keywords: Any) -> Any:
        if not issubclass(function, ours):
            return of_others(interpreter, function, *args, **keywords)
        from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

        level = FunctorchFunctionalizeAPI(interpreter)
        x, args = function.functional(*args)
        with level.redispatch_to_next():
            result = function.apply(*level.unwrap_tensors(args))
            if x is not None:
                result = result.expand(x.shape).to(x.dtype)  # which refuses another shape
        if x is None:
            return level.wrap_tensors(result)
        level.replace(x, result)
        level.commit_update(x)
        level.sync(x)
        return x

    rules[functionalize] = rule
