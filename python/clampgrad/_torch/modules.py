"""Modules of torch that ask an attribute of the instance how to run.

`replace_forwards` replaces `forward` and `extra_repr` of torch.nn's ReLU, Hardtanh and ReLU6,
once in a process. A module whose attribute `_clampgrad` is set runs what that says, and
every other one runs as before. So a module gets another forward and keeps its class, by
which other libraries know it.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # torch.jit.script looks up here what torch's source names
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from clampgrad._torch.after_import import get_if_imported
from clampgrad._torch.compiler import drop_compiled, lock
from clampgrad._torch.replacements import (
    Replacement,
    apply_replacements,
    expect,
    mark_replacement,
    original,
)
from clampgrad._torch.surroundings import is_capturing_graph

# A program compiles what stands in the place of torch's own methods. No kernel
# calls it (compiler.codes_of).
COMPILED_BY_ITSELF = True
# The functions that torch's forward calls. Libraries that count operations or trace replace them.
RELU = F.relu
HARDTANH = F.hardtanh
# An attribute; None in the class, so that compiled code guards what an instance has.
OVERRIDE = "_clampgrad"
RUN = (nn.ReLU, nn.Hardtanh)  # ReLU6 inherits the forward of Hardtanh
SHOW = (nn.ReLU, nn.Hardtanh, nn.ReLU6)


class ForwardOverride(Protocol):
    """The attribute of a module that overrides its forward."""

    def __call__(self, module: Any, input: Any, /) -> Any: ...

    def call_plain(self, module: Any, input: Any, /) -> Any:
        """Returns the result in fewer steps where only autograd sees the call, or None."""

    def extra_repr(self) -> str:
        """Describes the override in the repr of the module."""


# torch's own methods, once they are replaced. Somebody else may replace ours.
ORIGINAL_FORWARDS: dict[type[nn.Module], Callable[..., Tensor]] = {}

_done = False
_changing = threading.RLock()


def replace_forwards() -> None:
    """Changes torch's classes. Code that was compiled before would not notice, and is dropped."""
    global _done
    if _done:
        return
    with lock(), _changing:  # in the order in which a compilation that comes here takes them
        if _done:
            return
        ORIGINAL_FORWARDS.update({module: original(module.forward) for module in RUN})
        replacements = [Replacement(module, OVERRIDE, None) for module in RUN]
        replacements += [
            Replacement(module, "forward", wrap_forward(module.forward)) for module in RUN
        ]
        replacements += [
            Replacement(module, "extra_repr", wrap_extra_repr(module.extra_repr)) for module in SHOW
        ]
        with apply_replacements(replacements):
            if get_if_imported("torch._dynamo"):
                drop_compiled()
        _done = True


def wrap_forward(torch_method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torchs = original(torch_method)
    expect(torchs, "self", "input")

    @mark_replacement(torchs)
    def forward(self: Any, input: Any) -> Any:
        override = getattr(self, OVERRIDE, None)  # a class of others may borrow this method
        if override is None:
            return torchs(self, input)
        if not is_dynamo_compiling() and F.relu is RELU and F.hardtanh is HARDTANH:
            result = override.call_plain(self, input)
            if result is not None:
                return result
        return torchs(self, input) if is_captured(input) else override(self, input)

    return forward


def wrap_extra_repr(torch_method: Callable[..., str]) -> Callable[..., str]:
    torchs = original(torch_method)
    expect(torchs, "self")

    @mark_replacement(torchs)
    def extra_repr(self: Any) -> str:
        override = getattr(self, OVERRIDE, None)
        text = override.extra_repr() if override is not None else ""
        return ", ".join(filter(None, (torchs(self), text)))

    return extra_repr


def is_captured(input: Any) -> bool:
    """Whether torch's own function must run: a graph is captured, torch.fx traces, or a library has
    replaced F.relu or F.hardtanh."""
    return (
        is_capturing_graph()
        or F.relu is not RELU
        or F.hardtanh is not HARDTANH
        or isinstance(input, torch.fx.Proxy)
    )


def torchs_forward(module: nn.Module) -> Callable[..., Tensor] | None:
    """Returns torch's own forward of ReLU or Hardtanh, if the class of the module has or inherits
    it."""
    for of in RUN:
        if isinstance(module, of) and type(module).forward is of.forward:
            return ORIGINAL_FORWARDS.get(of, of.forward)
    return None


# The attributes of an instance that hold a forward. accelerate's hooks call `_old_forward`.
FORWARD_SLOTS = "forward", "_old_forward"


def bind_forward_again(module: nn.Module, *others: Callable[..., Tensor]) -> bool:
    """Whether a call of the module runs the forward of its class, as far as can be told.

    Libraries set a `forward` on the instance, which calls the method that was there
    before. A method that was bound before the class was changed, or while it had one
    of the `others`, is bound again.
    """
    known = {original(of.forward) for of in RUN}.union(others)
    bound = [
        name
        for name in FORWARD_SLOTS
        if isinstance(value := vars(module).get(name), types.MethodType)
        and value.__self__ is module
        and original(value.__func__) in known
    ]
    for name in bound:
        vars(module)[name] = types.MethodType(type(module).forward, module)
    return bool(bound) or "forward" not in vars(module)


def modules_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """Returns the modules in a module by their names, a shared one as often as it has one."""
    return module._modules


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Returns the dict in which a module has its own buffers, without those of its children."""
    return module._buffers
