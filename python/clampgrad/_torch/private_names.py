"""The private names of torch that this package uses, why, and what
happens if torch no longer has one.

A name is private where a part of it begins with an underscore. `Class().name` is an attribute of
instances. docs/private_names.md is made of this table, and test/pin/test_private.py compares it
with the sources of this package and with the torch that is installed.
"""

from importlib import import_module
from typing import Any, NamedTuple

import torch


class Use(NamedTuple):
    if_missing: str
    names: dict[str, str]  # module:name, and what it is for


PRIVATE = {
    "package": Use(
        "`import clampgrad` raises an ImportError that names it",
        {
            "torch.utils._python_dispatch:_disable_current_modes": (
                "our own work, which modes must not see"
            ),
            "torch._C:DisableTorchFunction": "the same, for function modes",
            "torch._C:_dispatch_dump": 'pin("installed"): derivatives that extensions register',
        },
    ),
    "portable": Use(
        "the same, where the portable implementation runs",
        {
            "torch._C:_are_functorch_transforms_active": "whether torch.func may record",
            "torch._C._functorch:is_functorch_wrapped_tensor": "the same, in forward mode",
            "torch._C._functorch:get_unwrapped": "the same",
            "torch._C._functorch:is_legacy_batchedtensor": "a gradient that is batched",
            "torch._C:_is_alias_of": "in place: a bound that shares memory",
            "torch._C:_len_torch_dispatch_stack": "in place: whether a mode is on",
            "torch._C:_get_dispatch_mode": "in place: whether a graph is recorded",
            "torch._C:_TorchDispatchModeKey": "the same",
            "torch.autograd.forward_ad:_set_fwd_grad_enabled": "tangents at other levels; pin: a node goes on at the next level",
            "torch.autograd.forward_ad:_current_level": "whether a tensor may carry a tangent",
            "torch.autograd.function:_SingleLevelFunction": "whether a tensor carries a tangent; pin: the node of one level",
            "torch._C._functorch:get_single_level_autograd_function_allowed": "the same",
            "torch._C._functorch:set_single_level_autograd_function_allowed": "the same",
            "torch._C:_dispatch_has_kernel_for_dispatch_key": (
                "pin: a backend with a kernel of its own"
            ),
            "torch._C:_dispatch_keyset_full_after": "pin: what is below autograd",
            "torch._C:_parse_dispatch_key": "pin: the autograd keys that there are",
            "torch._C:DispatchKey": "pin: the same",
            "torch._C:DispatchKeySet": "pin: torch's own kernel",
            "torch._C:_stash_obj_in_tls": "pin: a block follows backward into other threads",
            "torch._C:_get_obj_in_tls": "pin: the same",
            "torch._C:_is_key_in_tls": "pin: the same",
            "torch.autograd:Function._compiled_autograd_key": (
                "pin: that node is traced in compiled autograd"
            ),
            "torch._functorch.vmap:unwrap_batched": (
                "pin: vmap of clamp_, for which torch has no rule"
            ),
            "torch._C._functorch:current_level": "pin: the same",
            "torch._C:_ExcludeDispatchKeyGuard": "pin: the same",
            "torch._C._profiler:gather_traceback": "pin: what TorchScript differentiates by itself",
            "torch._C._profiler:symbolize_tracebacks": "pin: the same",
        },
    ),
    "audit": Use(
        "`clampgrad.audit` raises an ImportError that names it",
        {
            "torch:Tensor._version": "a result that is changed in place",
            "torch:Tensor._base": "what a view that is written is a view of",
            "torch:_foreach_clamp_min": "what a list of tensors calls",
            "torch:_foreach_clamp_max": "the same",
            "torch.nn:Module._call_impl": "which module makes a call",
            "torch._C:_current_graph_task_id": "calls that backward makes",
            "torch.overrides:_get_current_function_mode_stack": "audits that do not end as a stack",
            "torch._C:_len_torch_dispatch_stack": "whether a mode is on",
            "torch._C._functorch:is_legacy_batchedtensor": "gradients that cannot be counted",
            "torch._C._functorch:is_functorch_wrapped_tensor": "the tensors of torch.func",
            "torch._C._functorch:get_unwrapped": "the same",
            "torch._C._functorch:maybe_get_level": "the same",
            "torch._C._functorch:peek_interpreter_stack": "the same",
            "torch._C:_ExcludeDispatchKeyGuard": "the same",
            "torch._C:DispatchKey": "the same",
            "torch._C:DispatchKeySet": "the same",
            "torch.autograd.forward_ad:_current_level": "calls in forward mode",
            "torch._C._profiler:gather_traceback": "what TorchScript differentiates by itself",
            "torch._C._profiler:symbolize_tracebacks": "the same",
        },
    ),
    "convert": Use(
        "`example_inputs` of `clampgrad.nn.convert`, and its `filter_fn` and that of `set_gradient`, raise an error",
        {
            "torch.nn:Module()._buffers": "buffers are restored after the example",
            "torch.nn:Module()._modules": "a filter is called with each name of a shared module",
        },
    ),
    "pin": Use(
        "the first pin raises a RuntimeError that names it, and changes nothing. In a module "
        "that is imported later: under a pin the import fails; without one it is a warning, and "
        "the next pin's error",
        {
            "torch.utils.checkpoint:_CheckpointFrame": "a checkpoint remembers its pin",
            "torch._ops:OpOverload()._dispatch_cache": "what is traced has the pin's kernels",
            "torch._dynamo.guards:GuardBuilder": "compiled code is guarded by its pin",
            "torch._dynamo.aot_compile:AOTCompiledFunction.guard_check": (
                "code compiled without a pin is refused"
            ),
            "torch._inductor.codecache:FxGraphHashDetails": "caches on disk tell pins apart",
            "torch._C._dynamo.eval_frame:_reset_precompile_entries": (
                "code compiled without a pin is dropped"
            ),
        },
    ),
    "tasks": Use(
        "a block in an event loop raises a RuntimeError that names it",
        {"torch.autograd:Variable._execution_engine": "the block of a task follows backward"},
    ),
    "guard": Use(
        "torch.compile raises an error, in a process that has pinned",
        {
            "torch._dynamo.guards:GuardBuilder().guard_manager": (
                "compiled code is guarded by its pin"
            ),
            "torch._dynamo.guards:GuardManagerWrapper().root": "the same",
            "torch._C._dynamo.guards:RootGuardManager().add_lambda_guard": "the same",
            "torch._guards:Guard().create_fn": "saved code keeps its guard",
            "torch._guards:Guard().user_stack": "the source of a guard, in error messages",
            "torch._dynamo.guards:GuardBuilder().check_fn_manager": "whether code was saved",
            "torch._dynamo.guards:CheckFunctionManager().output_graph": "the same",
            "torch._dynamo.aot_compile:AOTCompiledFunction()._artifacts": (
                "code compiled without a pin is refused"
            ),
            "torch._dynamo.aot_compile:CompileArtifacts().guard_manager": "the same",
        },
    ),
    "compiler": Use(
        "a warning; clampgrad's compiled functions break the graphs of torch.compile",
        {
            "torch._dynamo.symbolic_convert:InstructionTranslatorBase.inline_user_function_return": (
                "the Python function is traced in place of the compiled one"
            ),
            "torch._dynamo.trace_rules:get_torch_obj_rule_map": "the same",
            "torch._dynamo.trace_rules:manual_torch_name_rule_map": "the same",
            "torch._dynamo.variables:TorchInGraphFunctionVariable": "the same",
            "torch._dynamo.variables.torch_function:can_dispatch_torch_function": (
                "the same, for subclasses"
            ),
            "torch._dynamo.variables.torch_function:dispatch_torch_function": (
                "the same, for subclasses"
            ),
        },
    ),
    "one thing": Use(
        "a warning, or none where torch has no such thing; that one thing is not done",
        {
            "torch.compiler:_is_exporting_flag": (
                "what `clampgrad.nn.convert` changed is exported as torch's own, and a pin in it warns"
            ),
            "torch._C:_remove_obj_from_tls": "portable: a thread that was pinned keeps nothing",
            "torch._C:_add_docstr": "compiled functions have documentation and a signature",
            "torch.jit._builtins:_register_builtin": "torch.jit.script takes clampgrad's functions",
            "torch.fx.operator_schemas:_manual_overrides": "torch.fx keeps the arguments of a call",
            "torch._dynamo.guards:GuardBuilder.GLOBAL_STATE": (
                "the guard is part of this, or of GRAD_MODE"
            ),
            "torch._higher_order_ops:cond": "operators that call functions remember their pin",
            "torch._dynamo.eval_frame:skip_code": "no kernel is compiled by itself",
            "torch._dynamo.convert_frame:compile_lock": "the first pin waits for the compiler",
            "torch._dynamo.output_graph:OutputGraphCommon().skip_guards_check": (
                "whether code was saved"
            ),
        },
    ),
}


def find(name: str) -> Any:
    """Returns the object of that name; for an attribute of instances, their class."""
    module, _, path = name.partition(":")
    thing: Any = import_module(module)
    for part in path.partition("()")[0].split("."):
        thing = getattr(thing, part)
    return thing


def unsupported(difference: str) -> RuntimeError:
    """Returns the error for a torch that differs from what this package expects."""
    return RuntimeError(f"clampgrad does not support torch {torch.__version__}: {difference}")


def require_name(name: str) -> Any:
    """Returns the object of that name, or raises a RuntimeError that says what is missing."""
    try:
        return find(name)
    except (AttributeError, ImportError):
        raise unsupported(f"it has no {name.replace(':', '.')}") from None


def check(use: str) -> None:
    """Raises ImportError where torch no longer has a name."""
    try:
        for name in PRIVATE[use].names:
            require_name(name)
    except RuntimeError as error:
        raise ImportError(str(error)) from None
