"""Modules of torch that ask an attribute of the instance how to run.

`change_modules` replaces `forward` and `extra_repr` of torch.nn's ReLU, Hardtanh and ReLU6,
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

from clampgrad._torch.after_import import imported
from clampgrad._torch.changes import Change, expect, made, original, replacing
from clampgrad._torch.compiler import drop_compiled, lock
from clampgrad._torch.surroundings import in_a_graph

# A program compiles what stands in the place of torch's own methods. No kernel
# calls it (compiler.codes_of).
COMPILED_BY_ITSELF = True
# What torch's forward calls. Libraries that count operations or trace put others in their place.
RELU = F.relu
HARDTANH = F.hardtanh
# An attribute; None in the class, so that compiled code guards what an instance has.
OVERRIDE = "_clampgrad"
RUN = (nn.ReLU, nn.Hardtanh)  # ReLU6 inherits the forward of Hardtanh
SHOW = (nn.ReLU, nn.Hardtanh, nn.ReLU6)


class ForwardOverride(Protocol):
    """What the attribute of a module may be."""

    def __call__(self, module: Any, input: Any, /) -> Any: ...

    def call_plain(self, module: Any, input: Any, /) -> Any:
        """Does the same in fewer steps if nothing but autograd sees the call; else returns None."""

    def extra_repr(self) -> str:
        """Returns what the module shows of it."""


# torch's own methods, once they are replaced. Somebody else may replace ours.
TORCHS: dict[type[nn.Module], Callable[..., Tensor]] = {}

_done = False
_changing = threading.RLock()


def change_modules() -> None:
    """Changes torch's classes. Code that was compiled before would not notice, and is dropped."""
    global _done
    if _done:
        return
    with lock(), _changing:  # in the order in which a compilation that comes here takes them
        if _done:
            return
        TORCHS.update({module: original(module.forward) for module in RUN})
        changes = [Change(module, OVERRIDE, None) for module in RUN]
        changes += [Change(module, "forward", wrap_forward(module.forward)) for module in RUN]
        changes += [
            Change(module, "extra_repr", wrap_extra_repr(module.extra_repr)) for module in SHOW
        ]
        with made(changes):
            if imported("torch._dynamo"):
                drop_compiled()
        _done = True


def wrap_forward(present: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torchs = original(present)
    expect(torchs, "self", "input")

    @replacing(torchs)
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


def wrap_extra_repr(present: Callable[..., str]) -> Callable[..., str]:
    torchs = original(present)
    expect(torchs, "self")

    @replacing(torchs)
    def extra_repr(self: Any) -> str:
        override = getattr(self, OVERRIDE, None)
        text = override.extra_repr() if override is not None else ""
        return ", ".join(filter(None, (torchs(self), text)))

    return extra_repr


def is_captured(input: Any) -> bool:
    """Whether others, who know torch's own functions, want the call: in a graph of
    theirs, or in their own function."""
    return (
        in_a_graph()
        or F.relu is not RELU
        or F.hardtanh is not HARDTANH
        or isinstance(input, torch.fx.Proxy)
    )


def torchs_forward(module: nn.Module) -> Callable[..., Tensor] | None:
    """torch's own forward of ReLU or Hardtanh, if the class of the module has or inherits it."""
    for of in RUN:
        if isinstance(module, of) and type(module).forward is of.forward:
            return TORCHS.get(of, of.forward)
    return None


# Where a forward is kept that another one on the instance calls.
# accelerate's hooks call `_old_forward`.
FORWARD_SLOTS = "forward", "_old_forward"


def bind_forward_again(module: nn.Module, *others: Callable[..., Tensor]) -> bool:
    """Whether a call of the module runs the forward of its class, as far as can be told.

    Libraries set a `forward` on the instance, which calls the method that was there
    before. A method that was bound before the class was changed, or while it had one
    of the `others`, is bound again.
    """
    known = {original(of.forward) for of in RUN}.union(others)
    kept = [
        name
        for name in FORWARD_SLOTS
        if isinstance(value := vars(module).get(name), types.MethodType)
        and value.__self__ is module
        and original(value.__func__) in known
    ]
    for name in kept:
        vars(module)[name] = types.MethodType(type(module).forward, module)
    return bool(kept) or "forward" not in vars(module)


def modules_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """The modules in a module by their names, a shared one as often as it has one."""
    return module._modules


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The buffers of a module, not of its children: the dict that it has them in."""
    return module._buffers
