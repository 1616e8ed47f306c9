"""The surroundings of a call (torch.func, forward mode, backward, modes), and the kinds of its
tensors."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
import torch.utils._python_dispatch as dispatch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode


def in_levels() -> bool:
    """Whether a level of torch.func is open, at which a gradient may be recorded."""
    return torch._C._are_functorch_transforms_active()


def in_transform() -> bool:
    """Whether torch.func runs the call at one of its levels."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_capturing_graph() -> bool:
    """Whether torch.jit traces or torch.export exports."""
    # torch 2.7 and later. Up to 2.11, torch.compile takes is_exporting() for True.
    return torch.jit.is_tracing() or getattr(torch.compiler, "_is_exporting_flag", False)


def check_levels_allow_writing(tensor: Tensor) -> None:
    """Raises torch's error if a level of torch.func that differentiates has this tensor, or what it
    is a view of, from around it, because the level would not see what is written."""
    if in_levels() and not tensor.is_nested:
        with torch.no_grad():
            tensor.unsqueeze(0)[:0].zero_()  # writes nothing: torch alone knows what is captured


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def is_of_transform(tensor: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_recorded_here(tensors: Iterable[Tensor]) -> bool:
    """Whether a gradient of one of them is recorded at the level of torch.func that runs the call,
    or by autograd itself where none does."""
    if not torch.is_grad_enabled():
        return False
    level = torch._C._functorch.peek_interpreter_stack()
    if level is None:
        return any(t.requires_grad for t in tensors)
    level = level.level()
    return any(t.requires_grad and torch._C._functorch.maybe_get_level(t) == level for t in tensors)


def unwrapped(tensor: Tensor) -> Tensor:
    """Returns the tensor without the wrappers of torch.func: all samples of all levels."""
    while is_of_transform(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def in_forward_mode() -> bool:
    """Whether a level of forward mode is open."""
    return fwad._current_level >= 0


def is_batched_gradient(tensor: Tensor) -> bool:
    """Whether `is_grads_batched` batched this gradient."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def forward_mode(enabled: bool) -> AbstractContextManager[Any]:
    """Returns a context in which tangents are recorded, or not."""
    return fwad._set_fwd_grad_enabled(enabled)


def in_autodiff() -> bool:
    """Whether TorchScript runs a graph that it differentiates by itself: on detached tensors, in a
    frame that torch names so in torch/csrc/jit/runtime/graph_executor.cpp."""
    stack = torch._C._profiler.gather_traceback(python=False, script=True, cpp=False)
    return any(
        f["name"] == "<forward op>" for f in torch._C._profiler.symbolize_tracebacks([stack])[0]
    )


_TRACE = inspect.unwrap(torch.jit.trace).__globals__


def below_a_trace() -> bool:
    """Whether torch.jit.trace is among the callers. Inside an operator that it records torch does
    not say so, but a function of its module is on the stack."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals is _TRACE:
            return True
    return False


def guard_dynamic_floats(bound: Any) -> Any:
    """Makes Dynamo guard the value of each float in a bound that it made a symbol because it
    changes. Returns a plain number, or the bound itself if it also depends on sizes or data. Where
    nothing reads the value, torch up to 2.14 may keep it without a guard
    (github.com/pytorch/pytorch/issues/194976)."""
    if not isinstance(bound, (torch.SymFloat, torch.SymInt)) or "zf" not in str(bound):
        return bound
    changing = {s for s in bound.node.expr.free_symbols if s.name.startswith("zf")}
    for symbol in changing:
        float(bound.node.shape_env.create_symfloatnode(symbol, hint=None))
    if bound.node.expr.free_symbols - changing:  # sizes, which stay symbols
        return bound
    return float(bound) if isinstance(bound, torch.SymFloat) else int(bound)


def dispatch_modes_are_on() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


# Whether the graph that is recorded of a function may keep an input that the function writes, and
# DTensor knows flip (csrc/ops/tensors.cpp, Note [An input that a graph writes]).
KEEPS_WRITTEN_INPUTS = (2, 13) <= tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)


def is_functionalizing() -> bool:
    """Whether calls are recorded as a graph of functions, by torch.compile for example."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None


def in_a_compiler() -> bool:
    """Whether a dispatch mode is on by which torch records or functionalizes a graph, or that makes
    tensors without values."""
    modes = torch._C._TorchDispatchModeKey
    return dispatch_modes_are_on() and any(
        torch._C._get_dispatch_mode(key) is not None
        for key in (modes.FUNCTIONAL, modes.PROXY, modes.FAKE)
    )


def without_dispatch_modes() -> AbstractContextManager[Any]:
    """Returns a context in which dispatch modes are off. Under some modes tensors have no
    values."""
    return dispatch._disable_current_modes()


@contextmanager
def hidden_from_modes() -> Iterator[None]:
    """Opens a block for our own computations, which no function mode (torch.set_default_device) or
    dispatch mode sees."""
    modes = without_dispatch_modes() if dispatch_modes_are_on() else nullcontext()
    with torch._C.DisableTorchFunction(), modes:
        yield


@contextmanager
def force_recording() -> Iterator[None]:
    """Opens a block like `hidden_from_modes`, in which gradients are recorded, whatever the caller
    has set. They may be NaN, so anomaly mode is off."""
    with ExitStack() as stack:
        for block in (hidden_from_modes(), torch.inference_mode(False), torch.enable_grad()):
            stack.enter_context(block)
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        # A checkpoint counts what is saved, and keeps it. Where hooks are disabled, as
        # in torch.func, there are none.
        with suppress(RuntimeError):
            stack.enter_context(saved_tensors_hooks(lambda t: t, lambda t: t))
        yield


def leave_function_mode(mode: TorchFunctionMode) -> None:
    """Takes a mode from those of this thread, of which it need not be the last."""
    modes = function_modes()
    at = next((i for i, each in enumerate(modes) if each is mode), None)
    if at is None:
        return
    for each in reversed(modes[at:]):
        TorchFunctionMode.__exit__(each, None, None, None)
    for each in modes[at + 1 :]:
        TorchFunctionMode.__enter__(each)


# ---- What only private names say -----------------------------------------------------------------


def registered_derivatives(operators: Iterable[str]) -> tuple[str, ...]:
    """Returns the registration at the alias key Autograd of each operator, as torch's dispatcher
    shows it: torch's own kernel, or the one that an extension has registered over it."""
    states = map(torch._C._dispatch_dump, operators)
    return tuple(text.partition("\nAutograd[alias]: ")[2].partition("\n")[0] for text in states)


def function_modes() -> list[TorchFunctionMode]:
    """Returns the function modes of this thread, the last one last."""
    modes: list[TorchFunctionMode] = torch.overrides._get_current_function_mode_stack()
    return modes


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same, or one is a view of the other."""
    return torch._C._is_alias_of(a, b)


def function_of_lists(name: str) -> Callable[..., list[Tensor]]:
    """Returns the function of torch that calls clamp_min or clamp_max for each tensor of a list."""
    return torch._foreach_clamp_min if name == "clamp_min" else torch._foreach_clamp_max


def base_of(view: Tensor) -> Tensor | None:
    """Returns the base of a view that is differentiated, or None."""
    return view._base


def version(x: Tensor) -> int:
    """Returns how often the tensor was changed in place."""
    return x._version
