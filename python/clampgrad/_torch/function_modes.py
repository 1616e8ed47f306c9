"""The stack of function modes of a thread, of which torch moves the topmost only."""

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode


def is_on(kind: type[TorchFunctionMode]) -> bool:
    return any(isinstance(m, kind) for m in overrides._get_current_function_mode_stack())


def put_below(mode: TorchFunctionMode) -> None:
    """Puts a mode below the others, because a mode that ends takes off the topmost one. Only torch's default
    device stays below it, where torch wants it."""
    others = _take_all()
    if others and others[-1] is getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None):
        overrides._push_mode(others.pop())
    for one in (mode, *reversed(others)):
        overrides._push_mode(one)


def take_off(kind: type[TorchFunctionMode]) -> None:
    for mode in reversed(_take_all()):
        if not isinstance(mode, kind):
            overrides._push_mode(mode)


def _take_all() -> list[TorchFunctionMode]:
    """Pops all modes, and returns them with the topmost first."""
    return [overrides._pop_mode() for _ in overrides._get_current_function_mode_stack()]
