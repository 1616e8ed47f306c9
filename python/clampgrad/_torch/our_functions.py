"""Tells parts of torch what they must know about clampgrad's functions, when they are imported.

- torch.compile: a compiled function can be compared, used as a key and given to map, as torch.clamp
  can. Instead of a call of it, the Python function is traced. (torch.compiler.substitute_in_graph
  does not serve: before 2.15, what it makes can only be called.)
- torch.fx leaves a call as it was written. Otherwise it would give the call all the arguments of
  the operator that TorchScript takes for the function.
- torch.jit.script takes a function for the operator of the same name, whose keywords are the same,
  except that the input is called `self`.

All of this is internal to torch. It is checked before anything is changed; where a release is
different, that is a warning, and compiled functions break graphs or keep more arguments.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

import torch

from clampgrad._torch.after_import import when_imported
from clampgrad._torch.replacements import expect_attribute, expect_to_take

# Compiled functions, and the Python functions of the same names that stand for them.
Traced: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]


def trace_in_place(traced: Traced, _: object) -> None:
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from torch._dynamo.trace_rules import get_torch_obj_rule_map, manual_torch_name_rule_map
    from torch._dynamo.variables import TorchInGraphFunctionVariable
    from torch._dynamo.variables.torch_function import (
        can_dispatch_torch_function,
        dispatch_torch_function,
    )

    expect_to_take(3, can_dispatch_torch_function)  # tx, args, kwargs
    expect_to_take(4, dispatch_torch_function)  # and the function
    inline = expect_attribute(InstructionTranslatorBase, "inline_user_function_return")
    expect_to_take(4, inline)  # self, function, args, kwargs
    expect_to_take(2, expect_attribute(TorchInGraphFunctionVariable, "build"))  # tx, function

    class CompiledFunctionVariable(TorchInGraphFunctionVariable):
        def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
            if can_dispatch_torch_function(tx, args, kwargs):
                return dispatch_torch_function(tx, self, args, kwargs)
            function = type(self).build(tx, traced[self.value])
            return tx.inline_user_function_return(function, [*args], dict(kwargs))

    get_torch_obj_rule_map().update(dict.fromkeys(traced, CompiledFunctionVariable))
    # torch makes that map again, from this one, when a process group is initialized.
    names = [f"{function.__module__}.{function.__name__}" for function in traced]
    manual_torch_name_rule_map.update(dict.fromkeys(names, CompiledFunctionVariable))


@cache
def bare_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature without annotations, whose names then need not be resolved."""
    parameters = inspect.signature(function).parameters.values()
    return inspect.Signature([p.replace(annotation=p.empty) for p in parameters])


def document(function: Callable[..., Any], text: str) -> None:
    """Gives a compiled function its documentation. Python reads the
    signature from the first line of it."""
    if add := getattr(torch._C, "_add_docstr", None):
        add(function, text)


def keep_as_called(traced: Traced, operator_schemas: Any) -> None:
    known = getattr(operator_schemas, "_manual_overrides", {})
    known.update({function: [bare_signature(traced[function])] for function in traced})


def script_as_operators(functions: Iterable[Callable[..., Any]], builtins: Any) -> None:
    for function in functions:
        builtins._register_builtin(function, f"clampgrad::{function.__name__}")


def introduce_functions(traced: Traced, scripted: Iterable[Callable[..., Any]]) -> None:
    when_imported("torch.jit._builtins", partial(script_as_operators, scripted))
    if traced:
        when_imported("torch._dynamo", partial(trace_in_place, traced))
        when_imported("torch.fx.operator_schemas", partial(keep_as_called, traced))
