"""The pin: kernels in Python at the autograd keys of aten's clamp and its
family, as csrc/pin has in C++.

They run wherever torch's own would: whoever calls, in any thread, at every level of
torch.func, in a trace. Where nothing is pinned or recorded they hand over to torch's own,
which stays at a key that no backend has.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from clampgrad._contract.table import PSEUDO
from clampgrad._implementation.portable.composed import compose, is_composed
from clampgrad._implementation.portable.forward import check_in_place, is_written_input
from clampgrad._implementation.portable.front_doors import column_of, operator_of, resolved
from clampgrad._implementation.portable.gate import Clamp, Rule, are_numbers, located
from clampgrad._torch import tangents, thread_state
from clampgrad._torch.dispatcher import (
    Kernel,
    OneLevel,
    batched_in_place,
    below_autograd,
    next_level,
    operator_named,
    register_at_autograd_keys,
    to_torchs_own,
)
from clampgrad._torch.surroundings import below_a_trace, guarded, in_autodiff

# ---- What holds: see _C.pyi ---------------------------------------------------------------------


class Block:
    """A pin from when it is entered until it is left, and the one around it."""

    # The blocks that there are. While there is none, no thread is looked at. Nothing
    # of Python runs where one goes.
    alive: ClassVar[set[ref[Block]]] = set()

    def __init__(self, name: str | None, outer: Block | None, owner: int, /) -> None:
        self.name, self.outer, self.owner = name, outer, owner
        self.thread = threading.get_ident()
        self.is_open = True
        self.alive.add(ref(self, self.alive.discard))
        # csrc/pin/pin.h, Note [Blocks of tasks that start each other]
        if outer and outer.is_of_this_thread:
            outer.outer = that_holds(outer.outer)

    @property
    def is_of_this_thread(self) -> bool:
        return self.thread == threading.get_ident()

    def move_here(self) -> None:
        self.thread = threading.get_ident()


class Held(NamedTuple):
    """What a thread holds and hands on (csrc/pin/pin.h, Note [A block travels])."""

    block: Block | None = None
    asks: int | None = None  # the thread whose tasks are in blocks

    def asks_here(self) -> bool:
        """Whether tasks of this thread are in blocks. Those of another thread cannot be asked."""
        if self.asks not in (None, threading.get_ident()):
            raise RuntimeError(
                "clampgrad.pin: this runs in a thread of PyTorch's own, for a task of an event loop where "
                "tasks are in blocks of their own, and only the thread of the loop can tell them apart. Put "
                "the block around the loop, or pin the process (clampgrad.set_pin)"
            )
        return self.asks is not None


NOTHING = Held()
of_process: str | None = None
asked: Callable[[], Block | None]


def held() -> Held:
    return thread_state.kept() or NOTHING


def hold(block: Block | None, asks: int | None) -> None:
    if block or asks is not None:
        thread_state.keep(Held(block, asks))
    elif thread_state.kept():
        thread_state.keep(None)


def that_holds(block: Block | None) -> Block | None:
    """This block, or one around it. The work that torch does for another thread
    keeps a block of that thread."""
    while block and not block.is_open and block.is_of_this_thread:
        block = block.outer
    return block


def pin_named(gradient: str, maximize: bool, /) -> str:
    return resolved(gradient, maximize) + ", maximize" * maximize


def that_holds_here(here: Held) -> Block | None:
    """The same of what this thread holds. A block may have been closed where that was
    not at hand: in a hook, for which torch puts it away, or in an event loop. Then
    this thread would hand it on."""
    block = that_holds(here.block)
    if block is not here.block:
        hold(block, here.asks)
    return block


def pin_innermost() -> Block | None:
    # Leaving a block needs no deeper a stack than entering it, so that a recursion
    # that fails leaves all of them.
    here = held()
    here.asks_here()
    return that_holds(here.block)


def pin_make_innermost(block: Block | None, /) -> Block | None:
    here = held()
    here.asks_here()
    hold(block, here.asks)
    return here.block


def pin_process(name: str | None, /) -> None:
    global of_process
    of_process = name


def pin_ask(function: Callable[[], Block | None], /) -> None:
    global asked
    asked = function


def pin_ask_in_this_thread(asks: bool, /) -> None:
    here, asking = held(), threading.get_ident() if asks else None
    of_another = here.asks not in (None, threading.get_ident())
    if here.asks != asking and (asks or not of_another):
        hold(here.block, asking)


def pin_current() -> str | None:
    if not Block.alive:
        return of_process
    here = held()
    block = asked() if here.asks_here() else that_holds_here(here)
    return block.name if block else of_process


# ---- What a call records ------------------------------------------------------------------------


@dataclass(eq=False)
class Pinned(Rule):
    """A call of torch's own operator, with the gradient that is pinned."""

    below: Callable[..., Tensor]  # the operator, below autograd
    records: bool  # whether gradients were recorded where it was called; in an autograd function they are not

    def forward(self, *args: Any) -> Tensor:
        if self.in_place and is_written_input(args[0]):  # the result is that of a copy
            return super().forward(*args)
        given = {"clamp_min": args[:2], "clamp_max": args[::2]}.get(self.name.rstrip("_"), args)
        with next_level(self.records):
            return self.below(*given)


class Recorded(OneLevel):
    """The node of a call. Its forward goes on below autograd, which is the next level."""

    forward = staticmethod(Clamp.forward)
    setup_context = staticmethod(Clamp.setup_context)
    backward = staticmethod(Clamp.backward)
    jvp = staticmethod(Clamp.jvp)


# ---- The kernels --------------------------------------------------------------------------------

reached: Counter[str] = Counter()
library: torch.library.Library


def pin_reached() -> dict[str, int]:
    return dict(reached)


def pinned(is_clamp: bool) -> str | None:
    """The convention that is pinned for such an operator, as rows of the contract name it."""
    name = pin_current()
    return None if name is None else column_for(name, is_clamp)


@cache
def column_for(name: str, is_clamp: bool) -> str | None:
    gradient, _, maximize = name.partition(", ")
    return column_of(gradient, bool(maximize)) if is_clamp or gradient not in PSEUDO else None


def are_differentiated(args: Sequence[Any]) -> bool:
    """Whether one of the arguments is: a Tensor of a dtype and a layout that torch clamps."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if torch.is_grad_enabled() and any([t.requires_grad and clamps(t) for t in tensors]):
        return True
    return tangents.may_exist() and tangents.carried([t for t in tensors if clamps(t)])


def clamps(x: Tensor) -> bool:
    """Whether torch's clamps take it, and record a gradient."""
    is_float = x.is_floating_point() and x.element_size() > 1
    return is_float and x.layout in (torch.strided, torch.jagged)


def is_recorded(x: Tensor, others: Sequence[Any], in_place: bool) -> bool:
    """Whether we record the call. Where torch raises an error we do not,
    so that it words the error."""
    if not are_differentiated((x, *others)):
        if torch.is_grad_enabled() and in_autodiff():
            raise RuntimeError(
                "clampgrad.pin: TorchScript differentiates this clamp by a rule of its own, which no pin "
                "reaches. Call the function that was scripted, or take the pin off around the script."
            )
        return False
    if all(other is None for other in others) or any(isinstance(o, complex) for o in others):
        return False
    if in_place and x.is_floating_point():
        check_in_place(x, *others)
    return not in_place or x.is_floating_point()


def kernel(name: str, operator: Any) -> Kernel:
    """The kernel that replaces torch's own kernel of an operator."""
    torchs, is_clamp = name.rstrip("_"), name.startswith("clamp")
    in_place = name.endswith("_")

    def bounds(given: tuple[Any, ...]) -> tuple[Any, Any]:
        return (None, *given) if torchs == "clamp_max" else (*given, None, None)[:2]

    def call(keys: Any, x: Tensor, *others: Any) -> Tensor:
        gradient = pinned(is_clamp)
        if gradient is None:
            return operator.redispatch(to_torchs_own(keys), x, *others)
        if is_clamp and not in_place and x.requires_grad and torch.is_grad_enabled():
            lo, hi = bounds(others)
            if is_composed(gradient, lo, hi) and not below_a_trace():
                v = x.detach()
                y = operator.redispatch(to_torchs_own(keys), v, *others)  # or its error
                result = compose(x, v, y, lo, hi, gradient)
                if result is not None:
                    reached[f"aten::{torchs}"] += 1
                    return result
        if not is_recorded(x, others, in_place):
            return operator.redispatch(to_torchs_own(keys), x, *others)
        reached[f"aten::{torchs}"] += 1
        others = tuple(map(guarded, others))
        rules = torchs
        if is_clamp:
            others = bounds(others)
            rules = operator_of(*others)
        records = torch.is_grad_enabled()
        with next_level(False):
            dtype, args, position = located(name, gradient, (x, *others))
        goes_on = partial(operator.redispatch, below_autograd(keys))
        rule = Pinned(name, rules, gradient, are_numbers(others), dtype, goes_on, records)
        return Recorded.call(rule, records, *args, position)

    return call


def kernel_for_lists(name: str, operator: Any) -> Kernel:
    """No pin reaches a list of tensors: this raises an error where a gradient is recorded."""

    def call(keys: Any, *args: Any) -> Any:
        each = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if pinned("clamp" in name) and are_differentiated(each):
            raise RuntimeError(
                "clampgrad.pin: no pin reaches a list of tensors. Call the operator for each of them, not "
                f"aten::{name}, or take the pin off around this call (`with clampgrad.pin(None)`)"
            )
        return operator.redispatch(to_torchs_own(keys), *args)

    return call


# ---- Where somebody observes: see _C.pyi ---------------------------------------------------------

observer: Callable[[str, tuple[Any, ...]], Callable[[Any], None] | None] | None = None
_told = threading.local()  # of the call that runs


def pin_observe(function: Any, /) -> None:
    global observer
    observer = function


def observed(name: str, kernel: Kernel) -> Kernel:
    """The kernel, of whose calls the observer is told."""

    def call(keys: Any, *args: Any) -> Any:
        tell = observer
        if tell is None or getattr(_told, "it", False) or (then := tell(name, args)) is None:
            return kernel(keys, *args)
        _told.it = True
        try:
            result = kernel(keys, *args)
        finally:
            _told.it = False
        then(result)
        return result

    return call


# ---- Registration -------------------------------------------------------------------------------

CLAMPS = [
    f"clamp{c}{i}{t}" for c in ("", "_min", "_max") for i in ("", "_") for t in ("", ".Tensor")
]
EXTREMA = ["maximum", "minimum", "fmax", "fmin"]
LISTS = [
    f"_foreach_{name}{in_place}.{overload}"
    for name in ("clamp_min", "clamp_max", "maximum", "minimum")
    for in_place in ("", "_")
    for overload in ("Scalar", "List", "ScalarList")
]


@cache
def pin_register() -> list[str]:
    """Once in a process: the kernels stay, and each call asks what is pinned."""
    global library
    kernels = {}
    for name in (*CLAMPS, *EXTREMA, *LISTS):
        make = kernel_for_lists if name in LISTS else kernel
        packet = name.partition(".")[0]
        kernels[name] = observed(f"aten::{packet}", make(packet, operator_named(name)))
    library = register_at_autograd_keys(kernels)
    for name in ("clamp_", "clamp_.Tensor"):
        rule = batched_in_place(operator_named(name), lambda: pin_current() is not None)
        library.impl(name, rule, "FuncTorchBatched")
    return [f"aten::{name}" for name in kernels]
