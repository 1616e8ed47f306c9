"""pin: one convention for torch's own clamp and its family, in code that one cannot rewrite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any

from clampgrad import _implementation
from clampgrad._torch_knows import Remembered, hold

if TYPE_CHECKING:
    from clampgrad.functional import Gradient

_enabled: list[int] = []  # in the process, the last one counts
_lock = threading.Lock()


class _Entered(threading.local):
    """The pins that this thread is in, each with what held before."""

    def __init__(self) -> None:
        self.pins: list[tuple[int, int]] = []


_entered = _Entered()


class pin(ContextDecorator):
    """Pins the gradient of torch's own clamp and its family, whoever calls them.

    Under a pin ``torch.clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``,
    ``fmax``, ``fmin``, their Tensor methods, their in-place and their ``_foreach_`` forms have the
    gradient that clampgrad's operators of those names have; the values stay as they are. So does
    everything that is made of them (``torch.max(x, y)``, ``F.normalize``, ``F.cosine_similarity``),
    in Python and in C++. What has a formula of its own keeps it: ``relu6``, ``hardtanh`` and others.
    clampgrad's own operators do what they are told. What is recorded under a pin keeps its gradient
    when the pin is gone.

    Per thread, until the end of the block, or, as a decorator, of the call::

        >>> x = torch.zeros(1, requires_grad=True)
        >>> with clampgrad.pin("inclusive"):
        ...     y = torch.clamp(x, 0, 1)
        >>> torch.autograd.grad(y, x)
        (tensor([1.]),)

    A thread that is started inside the block, such as those of ``nn.DataParallel``, is not pinned by
    it. For a whole process there are :meth:`enable` and :meth:`disable`; a block wins over them.

    Args:
        gradient: one of :data:`clampgrad.CONVENTIONS`, or None for torch's own gradient where
            another pin is on. ``with_grad``, ``restoring`` and ``straight_through`` pin the clamps
            and leave ``maximum``, ``minimum``, ``fmax`` and ``fmin`` alone.
        maximize: the loss is maximised (`with_grad` and `restoring` only).

    Errors: ValueError as in :func:`clampgrad.clamp`; RuntimeError for a pin that is enabled twice,
    or taken off in another order or another thread than it was put on, and for what TorchScript
    differentiates by its own rules, which no pin reaches.
    """

    def __init__(self, gradient: Gradient | None, *, maximize: bool = False) -> None:
        self._code = _implementation.pin_code(gradient, maximize)
        self._name = f"{gradient}, maximize" if maximize else gradient

    def __repr__(self) -> str:
        return f"<clampgrad.pin: {self._name}>"

    def __enter__(self) -> pin:
        _entered.pins.append((self._code, hold(self._code)))
        return self

    def __exit__(self, *_: object) -> None:
        if not _entered.pins or _entered.pins[-1][0] != self._code:
            raise RuntimeError(f"{self!r} is not what this thread entered last")
        hold(_entered.pins.pop()[1])

    def enable(self) -> None:
        """Pins every thread of the process, until :meth:`disable`."""
        with _lock:
            if self._code in _enabled:
                raise RuntimeError(f"{self!r} is enabled already")
            _enabled.append(self._code)
            hold(self._code, _implementation.pin_process)

    def disable(self) -> None:
        """Takes the pin off the process; what was enabled before it holds again."""
        with _lock:
            if self._code not in _enabled:
                raise RuntimeError(f"{self!r} is not enabled")
            if _enabled[-1] != self._code:
                raise RuntimeError(
                    f"{_implementation.pin_name(_enabled[-1])!r} was enabled after {self!r}: it goes first"
                )
            _enabled.pop()
            hold(_enabled[-1] if _enabled else 0, _implementation.pin_process)

    @staticmethod
    def current() -> str | None:
        """The convention that holds in this thread, or None for torch's own gradient.

        A pin with ``maximize=True`` is called, for example, ``"with_grad, maximize"``.
        """
        return _implementation.pin_name(_implementation.pin_current())

    @staticmethod
    def remember(function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` under the pin, or without one, that holds now, whenever it is called.

        For code that runs a forward again in backward. ``torch.utils.checkpoint`` needs no help.
        """
        return function if isinstance(function, Remembered) else Remembered(function)
