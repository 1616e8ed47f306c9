# What csrc/python/module.cpp defines. Positional arguments only.
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

_Bound: TypeAlias = int | float | Tensor | None
# input, min, max, gradient, maximize, out
_Clamp: TypeAlias = Callable[[Tensor, _Bound, _Bound, str, bool, Tensor | None], Tensor]
# input, other, gradient, out
_Pair: TypeAlias = Callable[[Tensor, Tensor, str, Tensor | None], Tensor]

clamp: _Clamp
clamp_: _Clamp
clamp_min: _Clamp
clamp_min_: _Clamp
clamp_max: _Clamp
clamp_max_: _Clamp
maximum: _Pair
minimum: _Pair
fmax: _Pair
fmin: _Pair

# Pins (csrc/pin/pin.h): a code says what holds. 0: nothing; -1: what the function of pin_ask says.
def pin_code(gradient: str | None, maximize: bool, /) -> int: ...
def pin_name(code: int, /) -> str | None: ...  # "with_grad, maximize"; None for torch's own
def pin_thread(code: int, /) -> int: ...  # returns what was set before
def pin_process(code: int, /) -> int: ...
def pin_current() -> int: ...
def pin_ask(function: Callable[[], int], /) -> None: ...
def pin_register() -> list[str]: ...  # once; the operators' names, "aten::clamp.Tensor"
