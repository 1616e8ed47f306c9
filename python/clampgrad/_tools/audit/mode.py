"""The audit itself: kernels announce calls of the clamp family to it, and a mode all others."""

import sys
import threading
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clampgrad._contract.changes import COMPARED, minor
from clampgrad._tools.audit import observer
from clampgrad._tools.audit.calls import (
    KERNEL_OPERATORS,
    Operands,
    Operator,
    operators_by_function,
    split_list_call,
)
from clampgrad._tools.audit.consumers import Consumers
from clampgrad._tools.audit.examination import Examination
from clampgrad._tools.audit.report import Report
from clampgrad._tools.audit.suspects import Suspects
from clampgrad._torch.quiet import is_quiet, quietly
from clampgrad._torch.surroundings import (
    function_modes,
    in_backward,
    in_transform,
    leave_function_mode,
)

# torch's own operators that call functions; some run only compiled.
CALL_FUNCTIONS = ("cond", "map_impl", "while_loop", "scan")


class audit(TorchFunctionMode):
    """Examines every call of clamp and related functions in a block, and
    the gradients that arrive there; and names the other calls that a release of PyTorch changed.

    Around one training step or a few, forward and backward::

        >>> with clampgrad.audit() as report:
        ...     loss(model(x), y).backward()
        >>> print(report)

    Covered are ``clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``,
    ``fmax``, ``fmin``, ``max`` and ``min`` of two Tensors, their methods and in-place forms, and
    ``torch._foreach_clamp_min`` and ``_foreach_clamp_max``, on Tensors of floating-point dtypes,
    whoever calls them: your code, PyTorch's own (``F.margin_ranking_loss``, ``F.normalize``), a
    script, ``torch.func``, in any thread. Also covered, where Python calls them, are ``relu``,
    ``relu6``, ``hardtanh`` and their modules, and the functions of clampgrad.

    For every call site (file, line, path of the module, the function that the line calls) the
    report has the number of elements; how many are exactly at a bound, beyond one, or NaN; how many
    were never inside their bounds (dead); how far the gradient that the call returns would move
    under each convention, as the norm of the difference over the norm, computed from the gradients
    that arrived; and warnings, which the page "Audit a program" of the documentation describes.
    Calls that it could not examine are counted, and its first sentence names them.

    A gradient that arrives after the block is not part of the report.
    The effect of a gradient further back in the model is not followed. Functions compiled by
    ``torch.compile`` run uncompiled during an audit. The second forward of a checkpoint is not
    counted again. Threads that run at the same time are in the report, too.

    Args:
        every: examine one in ``every`` calls of each call site, including the first. Examining a
            call costs several times as much as the call.
        between: the releases of PyTorch to compare, for example ``("2.13", "2.15")``; all that were
            compared with each other if None, which are 2.11 to 2.15.

    Raises:
        ValueError: `every` is less than 1; or `between` is not two different releases of those.
        RuntimeError: torch is older than 2.6; a backend has kernels of its own that a pin cannot
            replace; or the audit is entered while it is open.
    """

    def __init__(self, every: int = 1, between: tuple[str, str] | None = None) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"audit: every must be at least 1, not {every}")
        if not hasattr(torch.compiler, "set_stance"):
            raise RuntimeError(f"audit: needs torch 2.6 or later, and this is {torch.__version__}")
        compared = select_releases(between)
        self._suspects = Suspects(compared)
        self.report = Report(every, compared, self._suspects.by_key)
        self._operators = operators_by_function()
        self._consumers = Consumers()
        self._examination = Examination(self.report, self._consumers, self._operators, every)
        self._is_open = False

    def __enter__(self) -> Report:
        if self._is_open:
            raise RuntimeError("audit: this one is open already; call clampgrad.audit() again")
        observer.begin(self)
        try:
            super().__enter__()
            self._suspects.begin()
            self._is_open = True
        except BaseException:
            leave_function_mode(self)
            observer.end(self)
            raise
        return self.report

    def __exit__(self, *exception: Any) -> None:
        self._is_open = False
        self._suspects.end()
        leave_function_mode(self)
        observer.end(self)
        self._examination.end()

    # ---- From the kernels ------------------------------------------------------------------------

    def observe_call(self, name: str, args: tuple[Any, ...]) -> observer.ResultHandler | None:
        """Examines a call before its kernel runs; returns what to do with its result."""
        packet = name.removeprefix("aten::")
        operator = KERNEL_OPERATORS.get(packet.rstrip("_"))
        if operator is None:
            return None
        judge = self.report._run_before_call(self._suspects.judge_kernel_call, packet, args)
        handlers = [
            self.report._run_before_call(self._examine_kernel_call, packet, operator, call_args)
            for call_args in split_list_call(packet, args)
        ]
        if not any(handlers) and (judge is None or in_transform()):
            return None  # another level of torch.func announces and judges the call again

        def handle_result(result: Any) -> None:
            if judge:
                self.report._run_safely(judge, result)
            # Lists in place return nothing: their Tensors are the results.
            results = args[0] if result is None else result
            results = results if isinstance(results, list) else [results]
            for handler, one_result in zip(handlers, results):
                if handler:
                    self.report._run_safely(handler, one_result)

        return handle_result

    def _examine_kernel_call(self, packet: str, operator: Operator, args: tuple[Any, ...]) -> Any:
        operands = operator.read(*args)
        return operands and self._examination.examine_kernel_call(packet, operator, operands)

    # ---- From Python -----------------------------------------------------------------------------

    def follow_thread(self) -> None:
        mode = Follower(self)
        mode.__enter__()
        vars(_thread).setdefault("exits", []).append(_ThreadExit(mode))

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._is_open or is_quiet():
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name in CALL_FUNCTIONS and getattr(function, "namespace", "") == "higher_order":
            # Dynamo takes none of the empty keywords that torch itself adds
            # (mutated_arg_indices, from 2.15 on).
            kwargs = {key: value for key, value in kwargs.items() if value}
            with torch.compiler.set_stance("default"), quietly():
                compiled = torch.compile(function, backend="eager", fullgraph=True)
                result = compiled(*args, **kwargs)
            self.report._skip(f"inside {name.removesuffix('_impl')}")
            return result
        operator = self._operators.get(function)
        examine = self._examine_python_call if operator else self._consumers.follow
        handle_result = None
        if not in_backward():  # where a checkpoint runs its forward again
            handle_result = self.report._run_before_call(examine, function, args, kwargs)
        if operator and operator.is_ours:  # which may call aten's
            with quietly():
                result = function(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
        if handle_result is not None:
            self.report._run_safely(handle_result, result)
        if function in self._suspects.functions:
            self.report._run_safely(self._suspects.judge_call, function, args, kwargs, result)
        return result

    def _examine_python_call(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Examines a call that no kernel announces; returns what to do with its result."""
        operator = self._operators[function]
        try:
            operands = operator.read(*args, **kwargs)
        except TypeError:
            return None  # wrong arguments: the function itself will say so
        if operands is None or not isinstance(operands[0], Tensor):
            return None  # another function of that name
        is_hidden = _is_in_inference(operands)
        judge = None
        if operator.follows_torch and (is_hidden or kwargs.get("out") is not None):
            judge = self._suspects.judge_kernel_call(operator.name, operands)
        if operator.follows_torch and not is_hidden:
            return judge  # a kernel announces it
        if torch.jit.is_tracing():  # what is done here would be part of the trace
            return lambda _: self.report._skip("torch.jit.trace", follows_torch=False)
        examine = self._examination.examine_python_call(function, operator, operands, kwargs)
        handlers = [handler for handler in (judge, examine) if handler]

        def handle_result(result: Any) -> None:
            for handler in handlers:
                handler(result)

        return handle_result


class Follower(TorchFunctionMode):
    """Hands the calls of another thread to the audit; is left at the first call after the audit.
    Does not keep the audit alive: a thread of a pool may live as long as the program."""

    def __init__(self, followed: audit) -> None:
        super().__init__()
        self._followed = ref(followed)
        self._is_leaving = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **(kwargs or {}))
        followed = self._followed()
        if followed is not None and followed._is_open:
            return followed.__torch_function__(function, types, args, kwargs)
        if not self._is_leaving:
            # While a mode handles a call, it is not among the thread's modes, so it cannot leave
            # before the next event.
            self._is_leaving = True
            profile = sys.getprofile()

            def leave_at_event(*event: Any) -> None:
                if self in function_modes():
                    sys.setprofile(profile)
                    leave_function_mode(self)
                if profile is not None:
                    profile(*event)

            sys.setprofile(leave_at_event)
        return function(*args, **(kwargs or {}))


_thread = threading.local()  # Python clears it when a thread ends


class _ThreadExit:
    """Leaves a mode at the end of its thread. A mode that is still entered would be released in C++
    after the thread's end in Python: that waits for the interpreter, and if the program ends
    meanwhile, the process is aborted."""

    def __init__(self, mode: Follower) -> None:
        self._mode = mode

    def __del__(self) -> None:
        if self._mode in function_modes():
            leave_function_mode(self._mode)


def _is_in_inference(operands: Operands) -> bool:
    """Whether no kernel at the autograd keys runs, because nothing can be recorded."""
    return torch.is_inference_mode_enabled() or any(
        isinstance(v, Tensor) and v.is_inference() for v in operands
    )


def select_releases(between: tuple[str, str] | None) -> tuple[str, ...]:
    """Returns the releases to compare, the oldest first."""
    if between is None:
        return COMPARED
    releases = tuple(map(minor, between))
    unknown = [release for release in releases if release not in COMPARED]
    if unknown or len(set(releases)) != 2:
        wrong = f"{unknown[0]} is none of them" if unknown else f"not {' and '.join(between)}"
        raise ValueError(f"audit: two releases of {', '.join(COMPARED)} can be compared; {wrong}")
    return tuple(sorted(releases, key=COMPARED.index))
