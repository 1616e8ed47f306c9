"""torch.compile: guards compiled code, drops it, decides which of our functions are compiled, and
drops the kernels that tracing caches."""

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from clampgrad._torch.after_import import get_if_imported, when_imported
from clampgrad._torch.private_names import require_name
from clampgrad._torch.replacements import expect_attribute, original

GUARDED = "_clampgrad_pin"  # an attribute of guards that we have added to


def guard_of_every_frame(builder: type) -> tuple[str, Callable[..., Any]]:
    """Returns the method of torch's GuardBuilder that guards every compiled frame, and its name.
    Before 2.10 the global state has none."""
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


def is_loaded_code(builder: Any) -> bool:
    """Whether the guards belong to loaded code, which another process compiled."""
    return getattr(builder.check_fn_manager.output_graph, "skip_guards_check", False)


def is_guarded(compiled: Any) -> bool:
    """Whether a function that was compiled ahead of time has our guard."""
    return hasattr(compiled._artifacts.guard_manager, GUARDED)


def reset_precompiled() -> Callable[[CodeType], object] | None:
    """Returns torch's function that drops the code that caching_precompile loaded, or None in a
    release without it."""
    if not hasattr(torch._dynamo.config, "caching_precompile"):
        return None
    return require_name("torch._C._dynamo.eval_frame:_reset_precompile_entries")


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
    """Returns the codes, and those of the functions that are defined inside them."""
    left = [*codes]
    while left:
        code = left.pop()
        yield code
        left += [inner for inner in code.co_consts if type(inner) is CodeType]


def uncompiled() -> AbstractContextManager[Any]:
    """Returns a context in which compiled functions run eagerly."""
    if not get_if_imported("torch._dynamo") or not hasattr(
        torch.compiler, "set_stance"
    ):  # torch 2.6 and later
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def lock() -> Any:
    """Returns torch's lock, which resetting the compiler takes, or a new lock if the compiler is
    not imported."""
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(convert_frame, "compile_lock", None) or threading.RLock()


def dispatch_cache_of(name: str) -> Any:
    """Returns the cache in which the Python dispatcher, with which compilers trace, stores the
    kernels of an operator ("aten::clamp.Tensor")."""
    operator, _, overload = name.removeprefix("aten::").partition(".")
    entry = getattr(getattr(torch.ops.aten, operator), overload or "default")
    return expect_attribute(entry, "_dispatch_cache")


def disable_compilation(module: str, name: str) -> None:
    """Disables the compilation of one of our functions. A compiled function that calls it breaks
    its graph there."""

    def disable(_: object) -> None:
        ours = sys.modules[module]
        setattr(ours, name, torch.compiler.disable(getattr(ours, name)))

    when_imported("torch._dynamo", disable)


def skip_own_frames(*packages: str) -> None:
    """Makes Dynamo compile the functions of our packages, whose modules are all imported now, only
    as a part of their callers.

    Where Dynamo leaves a frame uncompiled, it compiles the functions that the frame calls; also
    those that torch calls meanwhile, such as a kernel in Python. There a call may have turned
    dispatch off, and nothing can be traced.
    """

    def skip(_: object) -> None:
        skip_code = require_name("torch._dynamo.eval_frame:skip_code")
        for code in codes_of(packages):
            skip_code(code)

    when_imported("torch._dynamo", skip)


def codes_of(packages: Iterable[str]) -> Iterator[CodeType]:
    """Returns the code of every function in the modules of some packages, but for modules
    that say no kernel calls them."""
    for name, module in tuple(sys.modules.items()):
        of_package = any(f"{name}.".startswith(f"{package}.") for package in packages)
        if of_package and not hasattr(module, "COMPILED_BY_ITSELF"):
            yield from with_inner(function.__code__ for function in functions_of(module, module))


def functions_of(module: ModuleType, owner: Any) -> Iterator[FunctionType]:
    """Returns the functions that a module defines, also in its classes and under decorators."""
    for value in tuple(vars(owner).values()):
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                yield from functions_of(module, value)
        elif callable(value) or isinstance(value, (staticmethod, classmethod, property)):
            function = inspect.unwrap(getattr(value, "fget", value))
            if getattr(function, "__globals__", None) is vars(module):
                yield function
