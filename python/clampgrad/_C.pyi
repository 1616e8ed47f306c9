# What csrc/python/module.cpp defines. Those of Tensors have the parameters of clampgrad.functional.
from collections.abc import Callable
from typing import TypeAlias

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

stamp: str  # tools/stamp.py

# Pins (csrc/pin/pin.h): a code says what holds. 0: nothing; -1: what the function of pin_ask says.
def pin_code(gradient: str | None, maximize: bool, /) -> int: ...
def pin_name(code: int, /) -> str | None: ...  # "with_grad, maximize"; None for torch's own
def pin_thread(code: int, /) -> int: ...  # returns what was set before
def pin_process(code: int, /) -> int: ...
def pin_current() -> int: ...
def pin_ask(function: Callable[[], int], /) -> None: ...
def pin_register() -> list[str]: ...  # once; the operators' names, "aten::clamp.Tensor"
def pin_reached() -> dict[str, int]: ...  # how many calls of those operators a pin reached
