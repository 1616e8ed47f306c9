"""pin: one convention for torch's own clamp and its family, in code that you cannot rewrite."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clampgrad import _implementation, _pin_state
from clampgrad._pin_state import Awaitable, Remembered, steps
from clampgrad._torch_knows import tell_torch

if TYPE_CHECKING:
    from clampgrad.functional import Gradient


class pin:
    """Pins the gradient of torch's own clamp and its family.

    Under a pin, ``torch.clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``,
    ``fmax`` and ``fmin``, including their Tensor methods, in-place and ``_foreach_`` forms, have the
    gradient of clampgrad's operators of those names. The forward does not change. The pin also applies to
    functions that are composed of them (``torch.max(x, y)``, ``F.normalize``, ``F.cosine_similarity``),
    whether they are called from Python or C++; the portable implementation only sees calls from Python.
    Operators with a formula of their own, such as ``relu6`` and ``hardtanh``, are not pinned, and
    clampgrad's own operators have the gradient that the call names. A call that is recorded under a pin
    keeps its gradient after the pin has ended.

    A ``with`` block pins the current thread until it ends; a decorated function, while it runs::

        >>> x = torch.zeros(1, requires_grad=True)
        >>> with clampgrad.pin("inclusive"):
        ...     y = torch.clamp(x, 0, 1)
        >>> torch.autograd.grad(y, x)
        (tensor([1.]),)

    Threads started inside the block, such as those of ``nn.DataParallel``, are not pinned by it. To pin
    a whole process, use :meth:`enable` and :meth:`disable`; a block takes precedence over them.

    Args:
        gradient: one of ``clampgrad.CONVENTIONS`` or an alias, or None to restore torch's own
            gradient inside another pin. ``with_grad``, ``restoring`` and ``straight_through`` pin the
            clamps and leave ``maximum``, ``minimum``, ``fmax`` and ``fmin`` alone.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).

    Raises:
        TypeError: `gradient` is neither a str nor None.
        ValueError: as in :func:`clampgrad.clamp`.
        RuntimeError: a pin is enabled twice, or removed in another order or another thread than it was
            set; or TorchScript differentiates a clamp by its own rules, which no pin reaches.
    """

    def __init__(self, gradient: Gradient | None, *, maximize: bool = False) -> None:
        self._code = _implementation.pin_code(gradient, maximize)

    def __repr__(self) -> str:
        return f"<clampgrad.pin: {_implementation.pin_name(self._code)}>"

    def __enter__(self) -> pin:
        tell_torch()
        _pin_state.enter(self._code, self)
        return self

    def __exit__(self, *_: object) -> None:
        if not _pin_state.leave(self):
            raise RuntimeError(
                f"{self!r} was left before a block that was entered after it: what ran in between "
                "may have had the wrong pin"
            )

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates a function or generator, asynchronous or not, so that its body runs under the pin."""
        decorated = self._decorated(function)
        return functools.wraps(function)(decorated)

    def _decorated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            with self:
                return function(*args, **keywords)

        def generate(*args: Any, **keywords: Any) -> Any:
            tell_torch()
            return (yield from steps(self._code, function(*args, **keywords)))

        async def run(*args: Any, **keywords: Any) -> Any:
            tell_torch()
            return await Awaitable(self._code, function(*args, **keywords))

        async def generate_async(*args: Any, **keywords: Any) -> Any:
            tell_torch()
            body = function(*args, **keywords)
            step = body.asend(None)
            try:
                while True:
                    try:
                        item = await Awaitable(self._code, step)
                    except StopAsyncIteration:
                        return
                    try:
                        step = body.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = body.athrow(error)
            finally:
                await Awaitable(self._code, body.aclose())

        if inspect.isasyncgenfunction(function):
            return generate_async
        if inspect.iscoroutinefunction(function):
            return run
        if inspect.isgeneratorfunction(function):
            return generate
        return call

    def enable(self) -> None:
        """Pins every thread of the process, until :meth:`disable`."""
        tell_torch()
        with _pin_state.lock:
            if self._code in _pin_state.enabled:
                raise RuntimeError(f"{self!r} is enabled already")
            _pin_state.enabled.append(self._code)
            _pin_state.set_enabled()

    def disable(self) -> None:
        """Removes the pin from the process; the one that was enabled before it becomes active again."""
        enabled = _pin_state.enabled
        with _pin_state.lock:
            if self._code not in enabled:
                raise RuntimeError(f"{self!r} is not enabled")
            if enabled[-1] != self._code:
                raise RuntimeError(
                    f"{_implementation.pin_name(enabled[-1])!r} was enabled after {self!r}: disable that first"
                )
            enabled.pop()
            _pin_state.set_enabled()

    @staticmethod
    def current() -> str | None:
        """Returns the convention that is pinned in this thread, or None for torch's own gradient.

        With ``maximize=True`` the name is, for example, ``"with_grad, maximize"``.
        """
        return _implementation.pin_name(_implementation.pin_current())

    @staticmethod
    def remember(function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `function` so that every call runs under the pin that is active now, or under none.

        Use it for code that runs a forward again in backward; ``torch.utils.checkpoint`` does not need it.
        """
        return function if isinstance(function, Remembered) else Remembered(function)
