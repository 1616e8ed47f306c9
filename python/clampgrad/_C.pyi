# What csrc/python defines. Functions of Tensors have the parameters of clampgrad.functional.
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

_Function: TypeAlias = Callable[..., Tensor]

clamp: _Function
clamp_: _Function
clamp_min: _Function
clamp_min_: _Function
clamp_max: _Function
clamp_max_: _Function
maximum: _Function
minimum: _Function
fmax: _Function
fmin: _Function

# A clamp between numbers of a plain tensor of floats, outside of everything that looks on; or None.
def clamp_plain(
    input: object, min: object, max: object, inplace: object, gradient: object, maximize: object, /
) -> Tensor | None: ...

stamp: str  # buildtools/stamp.py

# Pins (csrc/pin/pin.h). A pin is a name, as "with_grad, maximize", or None: torch's own gradient.
class Block:
    def __init__(self, name: str | None, outer: Block | None, owner: int, /) -> None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def outer(self) -> Block | None: ...
    @property
    def owner(self) -> int: ...
    @property
    def is_of_this_thread(self) -> bool: ...
    is_open: bool
    def assign_to_this_thread(self) -> None: ...

def pin_canonical_name(gradient: str, maximize: bool, /) -> str: ...  # the name, or the error
def pin_thread_block() -> Block | None: ...  # the active one of the thread, not of its tasks
def pin_set_thread_block(block: Block | None, /) -> Block | None: ...  # returns the previous one
def pin_set_process(name: str | None, /) -> None: ...
def pin_current() -> str | None: ...
def pin_set_block_resolver(resolver: Callable[[], Block | None], /) -> None: ...
def pin_set_resolver_enabled(enabled: bool, /) -> None: ...
def pin_register_kernels() -> list[str]: ...  # once; the operators' names, "aten::clamp.Tensor"
def pin_call_counts() -> dict[str, int]: ...  # how many calls of each got the gradient of a pin

# An audit: told of each call of those operators ("aten::clamp", its arguments) before it runs, in
# whatever thread. What it returns is told the result; if that is None, it is told of what the call
# calls in turn (another level of torch.func). No observer at all is None. Raises nothing.
_Observer: TypeAlias = Callable[[str, tuple[Any, ...]], Callable[[Any], None] | None]

def pin_observe(observer: _Observer | None, /) -> None: ...
