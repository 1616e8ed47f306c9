"""torch.compile: how compiled code is guarded, how it is dropped, what of ours is compiled, and the
kernels that tracing keeps."""

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from clampgrad._torch.after_import import imported, when_imported
from clampgrad._torch.changes import expect_attribute, original
from clampgrad._torch.private_names import expected

GUARDED = "_clampgrad_pin"  # an attribute of guards that we have added to


def guard_of_every_frame(builder: type) -> tuple[str, Callable[..., Any]]:
    """The method of torch's GuardBuilder that guards every compiled frame, and its name. Before
    2.10 the global state has none."""
    name = "GLOBAL_STATE" if hasattr(builder, "GLOBAL_STATE") else "GRAD_MODE"
    return name, original(expect_attribute(builder, name))


def add_guard(builder: Any, guard: Any, holds: Callable[[object], bool], says: str) -> None:
    """Guards a frame by what `holds` returns, beside the guard that it has."""
    name, method = guard_of_every_frame(type(builder))
    method(builder, guard)
    manager = builder.guard_manager
    stack = [guard.user_stack] if name == "GLOBAL_STATE" else []
    expect_attribute(manager, "root").add_lambda_guard(holds, [says], *stack)
    setattr(manager, GUARDED, True)


def was_saved(builder: Any) -> bool:
    """Whether the guards belong to loaded code, which another process compiled."""
    return getattr(builder.check_fn_manager.output_graph, "skip_guards_check", False)


def is_guarded(compiled: Any) -> bool:
    """Whether a function that was compiled ahead of time has our guard."""
    return hasattr(compiled._artifacts.guard_manager, GUARDED)


def reset_precompiled() -> Callable[[CodeType], object] | None:
    """torch's function that drops the code that caching_precompile
    loaded, if this release has that."""
    if not hasattr(torch._dynamo.config, "caching_precompile"):
        return None
    return expected("torch._C._dynamo.eval_frame:_reset_precompile_entries")


def drop_compiled() -> None:
    """Drops all compiled code. torch.compiler.reset does not drop what
    caching_precompile has loaded.

    That is kept at the code object of each function that it was compiled for, even when the
    compiled function is gone. So the code of every function in the process is reset.
    """
    torch.compiler.reset()
    if not (reset := reset_precompiled()):
        return
    functions = (thing for thing in gc.get_objects() if type(thing) is FunctionType)
    for code in with_inner(function.__code__ for function in functions):
        reset(code)


def with_inner(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    """The codes, and those of the functions that are defined inside them."""
    left = [*codes]
    while left:
        code = left.pop()
        yield code
        left += [inner for inner in code.co_consts if type(inner) is CodeType]


def uncompiled() -> AbstractContextManager[Any]:
    """A block in which compiled code runs as it was written."""
    if not imported("torch._dynamo") or not hasattr(
        torch.compiler, "set_stance"
    ):  # torch 2.6 and later
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def lock() -> Any:
    """torch's lock, which resetting the compiler takes; a new one where
    the compiler is not imported."""
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(convert_frame, "compile_lock", None) or threading.RLock()


def kept_kernels(name: str) -> Any:
    """The kernels of an operator ("aten::clamp.Tensor") that the Python dispatcher
    keeps; compilers trace with it."""
    operator, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, operator), overload or "default")
    return expect_attribute(found, "_dispatch_cache")


def leave_uncompiled(module: str, name: str) -> None:
    """Leaves a function of ours uncompiled: where a compiled function
    calls it, the graph breaks."""

    def disable(_: object) -> None:
        ours = sys.modules[module]
        setattr(ours, name, torch.compiler.disable(getattr(ours, name)))

    when_imported("torch._dynamo", disable)


def leave_to_callers(*packages: str) -> None:
    """Compiles functions of ours only as a part of what calls them: now all
    modules of the packages are imported.

    Where Dynamo leaves a frame uncompiled, it compiles the functions that the frame calls; also
    those that torch calls meanwhile, such as a kernel in Python. There a call may have turned
    dispatch off, and nothing can be traced.
    """

    def skip(_: object) -> None:
        skip_code = expected("torch._dynamo.eval_frame:skip_code")
        for code in codes_of(packages):
            skip_code(code)

    when_imported("torch._dynamo", skip)


def codes_of(packages: Iterable[str]) -> Iterator[CodeType]:
    """The code of every function in the modules of some packages, but for modules
    that say no kernel calls them."""
    for name, module in tuple(sys.modules.items()):
        of_package = any(f"{name}.".startswith(f"{package}.") for package in packages)
        if of_package and not hasattr(module, "COMPILED_BY_ITSELF"):
            yield from with_inner(function.__code__ for function in functions_of(module, module))


def functions_of(module: ModuleType, owner: Any) -> Iterator[FunctionType]:
    """The functions that a module defines, also in its classes and under decorators."""
    for value in tuple(vars(owner).values()):
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                yield from functions_of(module, value)
        elif callable(value) or isinstance(value, (staticmethod, classmethod, property)):
            function = inspect.unwrap(getattr(value, "fget", value))
            if getattr(function, "__globals__", None) is vars(module):
                yield function
