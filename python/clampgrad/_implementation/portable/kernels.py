"""The pin: kernels in Python at the autograd keys of aten's clamp and its
family, as csrc/pin has in C++.

They run wherever torch's own would: whoever calls, in any thread, at every level of
torch.func, in a trace. For a call that is not pinned, or not recorded, they redispatch to
torch's own kernel, which stays at a key that no backend has.
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

from clampgrad._contract.messages import MESSAGES
from clampgrad._contract.table import PSEUDO
from clampgrad._implementation.portable.composed import compose, is_composed
from clampgrad._implementation.portable.forward import check_in_place, is_mutated_graph_input
from clampgrad._implementation.portable.front_doors import (
    column_of,
    operator_of,
    resolve_convention,
)
from clampgrad._implementation.portable.gate import CallSpec, Clamp, are_numbers, locate_elements
from clampgrad._torch import tangents, thread_state
from clampgrad._torch.dispatcher import (
    Kernel,
    OneLevel,
    below_autograd,
    make_inplace_batch_rule,
    next_level,
    operator_named,
    register_at_autograd_keys,
    torch_kernel_keys,
)
from clampgrad._torch.surroundings import below_a_trace, guard_dynamic_floats, in_autodiff
from clampgrad._torch.torchs_functions import CLAMPS, EXTREMA

# ---- The active pin: see _C.pyi -----------------------------------------------------------------


class Block:
    """A pin from the time it is entered until it is left, and the outer block."""

    # The blocks that exist. While there are none, a call does not look at the state of its
    # thread. No Python code runs when a block is destroyed.
    alive: ClassVar[set[ref[Block]]] = set()

    def __init__(self, name: str | None, outer: Block | None, owner: int, /) -> None:
        self.name, self.outer, self.owner = name, outer, owner
        self.thread = threading.get_ident()
        self.is_open = True
        self.alive.add(ref(self, self.alive.discard))
        # csrc/pin/pin.h, Note [Blocks of tasks that start each other]
        if outer and outer.is_of_this_thread:
            outer.outer = find_open_block(outer.outer)

    @property
    def is_of_this_thread(self) -> bool:
        return self.thread == threading.get_ident()

    def assign_to_this_thread(self) -> None:
        self.thread = threading.get_ident()


class ThreadPin(NamedTuple):
    """The pin of a thread, which torch copies to the threads that work for it (csrc/pin/pin.h, Note
    [A block travels])."""

    block: Block | None = None
    resolver_thread: int | None = None  # the thread whose tasks have blocks

    def uses_resolver(self) -> bool:
        """Whether tasks of this thread have blocks. Raises an error for tasks of another thread,
        which only that thread can resolve."""
        if self.resolver_thread not in (None, threading.get_ident()):
            raise RuntimeError(MESSAGES["kTaskOfOtherThread"])
        return self.resolver_thread is not None


NO_PIN = ThreadPin()
process_pin_name: str | None = None
block_resolver: Callable[[], Block | None]


def get_thread_pin() -> ThreadPin:
    return thread_state.get_thread_value() or NO_PIN


def set_thread_pin(block: Block | None, resolver_thread: int | None) -> None:
    if block or resolver_thread is not None:
        thread_state.set_thread_value(ThreadPin(block, resolver_thread))
    elif thread_state.get_thread_value():
        thread_state.set_thread_value(None)


def find_open_block(block: Block | None) -> Block | None:
    """Returns the first block, from this one outwards, that is open or belongs to another thread:
    work that torch does for that thread keeps its pin after the block was left."""
    while block and not block.is_open and block.is_of_this_thread:
        block = block.outer
    return block


def pin_canonical_name(gradient: str, maximize: bool, /) -> str:
    return resolve_convention(gradient, maximize) + ", maximize" * maximize


def active_thread_block(pin: ThreadPin) -> Block | None:
    """Returns the active block of this thread, and drops closed ones from the thread state, which
    torch would copy to other threads. They are left there if a block was closed in a hook, around
    which torch swaps the state, or in an event loop."""
    block = find_open_block(pin.block)
    if block is not pin.block:
        set_thread_pin(block, pin.resolver_thread)
    return block


def pin_thread_block() -> Block | None:
    # Does not drop closed blocks: leaving a block must not need a deeper stack than entering it, so
    # that blocks can be left after a RecursionError.
    pin = get_thread_pin()
    pin.uses_resolver()
    return find_open_block(pin.block)


def pin_set_thread_block(block: Block | None, /) -> Block | None:
    pin = get_thread_pin()
    pin.uses_resolver()
    set_thread_pin(block, pin.resolver_thread)
    return pin.block


def pin_set_process(name: str | None, /) -> None:
    global process_pin_name
    process_pin_name = name


def pin_set_block_resolver(resolver: Callable[[], Block | None], /) -> None:
    global block_resolver
    block_resolver = resolver


def pin_set_resolver_enabled(enabled: bool, /) -> None:
    pin, thread = get_thread_pin(), threading.get_ident() if enabled else None
    is_other = pin.resolver_thread not in (None, threading.get_ident())
    if pin.resolver_thread != thread and (enabled or not is_other):
        set_thread_pin(pin.block, thread)


def pin_current() -> str | None:
    if not Block.alive:
        return process_pin_name
    pin = get_thread_pin()
    block = block_resolver() if pin.uses_resolver() else active_thread_block(pin)
    return block.name if block else process_pin_name


# ---- The node of a call -------------------------------------------------------------------------


@dataclass(eq=False)
class PinnedCallSpec(CallSpec):
    """A call of torch's own operator, with the gradient that is pinned."""

    below: Callable[..., Tensor]  # the operator, below autograd
    is_recording: bool  # grad mode of the caller; an autograd function turns it off

    def forward(self, *args: Any) -> Tensor:
        if self.in_place and is_mutated_graph_input(args[0]):  # the result is computed from a copy
            return super().forward(*args)
        present = {"clamp_min": args[:2], "clamp_max": args[::2]}.get(self.name.rstrip("_"), args)
        with next_level(self.is_recording):
            return self.below(*present)


class PinnedNode(OneLevel):
    """The node of a call. Its forward runs below autograd, which is the next level."""

    forward = staticmethod(Clamp.forward)
    setup_context = staticmethod(Clamp.setup_context)
    backward = staticmethod(Clamp.backward)
    jvp = staticmethod(Clamp.jvp)


# ---- The kernels --------------------------------------------------------------------------------

pinned_calls: Counter[str] = Counter()
library: torch.library.Library


def pin_call_counts() -> dict[str, int]:
    return dict(pinned_calls)


def pinned_column(is_clamp: bool) -> str | None:
    """Returns the convention that is pinned for a clamp or an extremum, as rows of the contract
    name it, or None."""
    name = pin_current()
    return None if name is None else column_of_pin(name, is_clamp)


@cache
def column_of_pin(name: str, is_clamp: bool) -> str | None:
    gradient, _, maximize = name.partition(", ")
    return column_of(gradient, bool(maximize)) if is_clamp or gradient not in PSEUDO else None


def any_differentiated(args: Sequence[Any]) -> bool:
    """Whether one of the arguments is a differentiated Tensor of a dtype and layout that torch
    clamps."""
    if torch.is_grad_enabled():
        for a in args:
            if isinstance(a, Tensor) and a.requires_grad and is_clampable(a):
                return True
    if not tangents.may_exist():
        return False
    return tangents.carried([a for a in args if isinstance(a, Tensor) and is_clampable(a)])


def is_clampable(x: Tensor) -> bool:
    """Whether torch's clamps accept the tensor, and record its gradient."""
    is_float = x.is_floating_point() and x.element_size() > 1
    return is_float and x.layout in (torch.strided, torch.jagged)


def should_record(x: Tensor, others: Sequence[Any], in_place: bool) -> bool:
    """Whether we record the call. False for arguments that torch refuses, so that torch's operator
    runs and raises its own error."""
    if not any_differentiated((x, *others)):
        if torch.is_grad_enabled() and in_autodiff():
            raise RuntimeError(MESSAGES["kTorchScriptDifferentiates"])
        return False
    if all(other is None for other in others) or any(isinstance(o, complex) for o in others):
        return False
    if in_place and x.is_floating_point():
        check_in_place(x, *others)
    return not in_place or x.is_floating_point()


def kernel(name: str, operator: Any) -> Kernel:
    """Returns the kernel that replaces torch's own kernel of an operator."""
    out_of_place, is_clamp = name.rstrip("_"), name.startswith("clamp")
    in_place = name.endswith("_")
    counted = f"aten::{out_of_place}"

    def bounds(present: tuple[Any, ...]) -> tuple[Any, Any]:
        return (None, *present) if out_of_place == "clamp_max" else (*present, None, None)[:2]

    def call(keys: Any, x: Tensor, *others: Any) -> Tensor:
        gradient = pinned_column(is_clamp)
        if gradient is None:
            return operator.redispatch(torch_kernel_keys(keys), x, *others)
        if is_clamp and not in_place and x.requires_grad and torch.is_grad_enabled():
            lo, hi = bounds(others)
            if is_composed(gradient, lo, hi) and not below_a_trace():
                v = x.detach()
                y = operator.redispatch(torch_kernel_keys(keys), v, *others)  # or its error
                result = compose(x, v, y, lo, hi, gradient)
                if result is not None:
                    pinned_calls[counted] += 1
                    return result
        if not should_record(x, others, in_place):
            return operator.redispatch(torch_kernel_keys(keys), x, *others)
        pinned_calls[counted] += 1
        others = tuple(map(guard_dynamic_floats, others))
        contract_operator = out_of_place
        if is_clamp:
            others = bounds(others)
            contract_operator = operator_of(*others)
        is_recording = torch.is_grad_enabled()
        with next_level(False):
            dtype, args, comparison_code = locate_elements(name, gradient, (x, *others))
        redispatch_below = partial(operator.redispatch, below_autograd(keys))
        spec = PinnedCallSpec(
            name,
            contract_operator,
            gradient,
            are_numbers(others),
            dtype,
            redispatch_below,
            is_recording,
        )
        return PinnedNode.call(spec, is_recording, *args, comparison_code)

    return call


def kernel_for_lists(name: str, operator: Any) -> Kernel:
    """Returns a kernel that raises an error where a gradient of a list of tensors is recorded: no
    pin reaches lists."""

    def call(keys: Any, *args: Any) -> Any:
        elements = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if pinned_column("clamp" in name) and any_differentiated(elements):
            raise RuntimeError(MESSAGES["kNoPinForLists"].format(f"aten::{name}"))
        return operator.redispatch(torch_kernel_keys(keys), *args)

    return call


# ---- Observed calls: see _C.pyi -----------------------------------------------------------------

observer: Callable[[str, tuple[Any, ...]], Callable[[Any], None] | None] | None = None
_observing = threading.local()  # whether the call that runs is observed


def pin_observe(function: Any, /) -> None:
    global observer
    observer = function


def wrap_for_observer(name: str, kernel: Kernel) -> Kernel:
    """Returns the kernel with the observer around it."""

    def call(keys: Any, *args: Any) -> Any:
        observe = observer
        if observe is None or getattr(_observing, "on", False):
            return kernel(keys, *args)
        observe_result = observe(name, args)
        if observe_result is None:
            return kernel(keys, *args)
        _observing.on = True
        try:
            result = kernel(keys, *args)
        finally:
            _observing.on = False
        observe_result(result)
        return result

    return call


# ---- Registration -------------------------------------------------------------------------------

OVERLOADS = [clamp + overload for clamp in CLAMPS for overload in ("", ".Tensor")] + [*EXTREMA]
LISTS = [
    f"_foreach_{name}{in_place}.{overload}"
    for name in ("clamp_min", "clamp_max", "maximum", "minimum")
    for in_place in ("", "_")
    for overload in ("Scalar", "List", "ScalarList")
]


@cache
def pin_register_kernels() -> list[str]:
    """Registers the kernels at the first call. They stay, and each call looks up the pin."""
    global library
    kernels = {}
    for name in (*OVERLOADS, *LISTS):
        make = kernel_for_lists if name in LISTS else kernel
        packet = name.partition(".")[0]
        kernels[name] = wrap_for_observer(f"aten::{packet}", make(packet, operator_named(name)))
    library = register_at_autograd_keys(kernels, MESSAGES["kOwnAutogradKernel"])
    for name in ("clamp_", "clamp_.Tensor"):
        rule = make_inplace_batch_rule(operator_named(name), lambda: pin_current() is not None)
        library.impl(name, rule, "FuncTorchBatched")
    return [f"aten::{name}" for name in kernels]
