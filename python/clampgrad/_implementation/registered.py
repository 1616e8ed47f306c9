"""What this process has registered with torch, for an import after sys.modules was purged.

Operators are registered once in a process, and they stay. So what registered them is kept with them, and
a package that is imported anew runs on it: the same functions, the same pins.
"""

import sys
from types import ModuleType, SimpleNamespace

import torch

from clampgrad._implementation.stamp import expected, minor

MODULES = ("clampgrad._C", "clampgrad._lib", "clampgrad._implementation.portable")


def here() -> str:
    return expected(minor(torch.__version__))


def register(name: str, why: str, functions: ModuleType) -> None:
    modules = {n: module for n, module in sys.modules.items() if n.startswith(MODULES)}
    torch.ops.clampgrad._registered = SimpleNamespace(
        name=name, why=why, functions=functions, stamp=here(), modules=modules
    )


def registered(portable: bool, required: bool) -> tuple[str, str, ModuleType] | None:
    """The implementation that an earlier import registered, if any; a process cannot have a second one."""
    earlier = vars(torch.ops.clampgrad).get("_registered")
    if earlier is None:
        return None
    other = required if earlier.name == "portable" else portable
    if other or earlier.stamp != here():
        raise ImportError(
            f"this process has imported clampgrad before, with the {earlier.name} implementation of another "
            "build or another choice, and its operators stay: start the process again"
        )
    sys.modules.update(earlier.modules)
    return earlier.name, earlier.why, earlier.functions
