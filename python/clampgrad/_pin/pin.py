"""pin: one convention for torch's own clamp and its family, in code that you cannot rewrite."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NoReturn, ParamSpec, TypeAlias, TypeVar

from torch import nn

from clampgrad import _implementation
from clampgrad._contract.table import CANONICAL, unknown_gradient_message
from clampgrad._pin import body, state, verbose
from clampgrad._pin.captured import format_pin, warn_if_captured
from clampgrad._pin.decorated import decorate, wrap_if_generator
from clampgrad._pin.first_pin import ensure_hooks_installed
from clampgrad._pin.installed import detect_installed_convention

if TYPE_CHECKING:
    from clampgrad._contract.gradients import Gradient

    Pinned: TypeAlias = Gradient | Literal["installed"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class pin:
    """Pins the gradient of torch's own clamp and its family.

    Under a pin, ``torch.clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``,
    ``fmax`` and ``fmin``, including their Tensor methods and in-place forms, have the gradient of
    clampgrad's operators of those names. The forward does not change. The pin also applies to
    functions that are composed of them (``torch.max(x, y)``, ``F.normalize``,
    ``F.margin_ranking_loss``), whether they are called from Python or C++.
    ``torch._foreach_clamp_min`` and the others for lists of Tensors raise an error where a gradient
    is recorded. Operators with a formula of their own, such as ``relu6`` and ``hardtanh``, are not
    pinned, and clampgrad's own operators have the gradient that the call names. A call that is
    recorded under a pin keeps its gradient after the pin has ended.

    A ``with`` block pins the current thread until it ends; a decorated function, while it runs::

        >>> x = torch.zeros(1, requires_grad=True)
        >>> with clampgrad.pin("inclusive"):
        ...     y = torch.clamp(x, 0, 1)
        >>> torch.autograd.grad(y, x)
        (tensor([1.]),)

    The block also pins the work that torch does for this thread in threads of its own: backward (on
    a GPU, or deeply nested) and what a script forks. Threads of Python that are started inside the
    block, such as those of ``nn.DataParallel``, are not pinned by it. To pin a whole process, use
    :func:`set_pin`; a block takes precedence.

    Args:
        gradient: one of ``clampgrad.CONVENTIONS`` or an alias; ``"installed"`` for the convention
            that the installed torch has by itself; or None to restore torch's own gradient inside
            another pin. One of ``clampgrad.PSEUDO`` pins the clamps and leaves ``maximum``,
            ``minimum``, ``fmax`` and ``fmin`` alone.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).

    Raises:
        TypeError: `gradient` is neither a str nor None, or what is decorated is no function.
        ValueError: as in :func:`clampgrad.clamp`.
        RuntimeError: a block is left in another order or another thread than it was entered; or a
            clamp runs where no pin reaches, because TorchScript differentiates it by its own rules,
            or forks it in a task of an event loop.
    """

    _is_used = True  # until it has been made
    _numbers = itertools.count(1)

    def __init__(self, gradient: Pinned | None, *, maximize: bool = False) -> None:
        self._name = resolve_pin_name(gradient, maximize)
        self._number = next(self._numbers)
        caller = sys._getframe(1)
        self._created_at = caller.f_code.co_filename, caller.f_lineno
        self._is_used = False

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn_explicit(
                f"{format_pin(self._name)} was made and not used, so nothing was pinned: write `with` before it, "
                "or @ to decorate a function; clampgrad.set_pin pins the process",
                UserWarning,
                *self._created_at,
            )

    def __repr__(self) -> str:
        if self._is_used:
            return format_pin(self._name)
        # A notebook shows what is made and not used, and keeps it, so that __del__ says nothing.
        return (
            f"{format_pin(self._name)[:-1]}, not active: write `with` before it, or clampgrad.set_pin "
            "to pin the process>"
        )

    def __enter__(self) -> pin:
        self._is_used = True
        warn_if_captured(self._name, stacklevel=3)
        ensure_hooks_installed()
        block = state.create_block(self._name, self._number)
        try:
            state.set_innermost_block(block)
            return self
        except BaseException:  # a KeyboardInterrupt after all, say
            block.is_open = False
            raise

    def __exit__(self, error: object, *_: object) -> None:
        entered = None
        try:
            entered = state.find_block_entered_by(self._number)
        finally:
            block, is_active = entered or state.find_block_entered_by(self._number)
            if block:
                block.is_open = False
        state.drop_closed_blocks()
        if error is None and not is_active:
            raise RuntimeError(
                f"{self!r} was left before a block that was entered after it: what ran in between "
                "may have had the wrong pin"
                if block
                else f"{self!r} is not entered here"
            )

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Decorates a function or generator, asynchronous or not, so that
        its body runs under the pin."""
        self._is_used = True
        return decorate(function, self._name)

    @staticmethod
    def current() -> str | None:
        """Returns the convention that is pinned in this thread, or None for torch's own gradient.

        With ``maximize=True`` the name is, for example, ``"with_grad, maximize"``.
        """
        return state.current_pin_name()

    @staticmethod
    def remember(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Wraps `function` so that every call runs under the pin that is active now, or under none.
        If it is a generator or coroutine function, so does its body.

        Use it for code that runs a forward again in backward;
        ``torch.utils.checkpoint`` does not need it.
        """
        if isinstance(function, body.PinnedFunction):  # it keeps its pin
            return function
        name = state.current_pin_name()
        runs: object = function
        while isinstance(runs, functools.partial):
            runs = runs.func
        if isinstance(runs, nn.Module):
            runs = getattr(runs, "forward", None)  # a scripted one may have none
        elif not inspect.isroutine(runs):
            runs = getattr(type(runs), "__call__", None)  # noqa: B004 -- what it is
        whole = wrap_if_generator(function, runs, functools.partial(body.PinnedBody, name))
        return body.PinnedFunction(whole or function, name)


def resolve_pin_name(gradient: Pinned | None, maximize: bool) -> str | None:
    """Returns the first name of the convention to pin, or None. Raises as the operators do."""
    if gradient is None:
        if maximize:
            raise ValueError("maximize=True does not apply to torch's own gradient")
        return None
    name = detect_installed_convention() if gradient == "installed" else gradient
    if isinstance(name, str) and name not in CANONICAL:
        raise ValueError(unknown_gradient_message(name, "installed"))
    return _implementation.pin_canonical_name(name, maximize)


class set_pin:
    """Pins every thread of the process, in place of what was set before; None ends that.

    Like ``torch.autograd.set_detect_anomaly``, it takes effect when it is called, and may be
    called again. As a context manager it also sets, at the end of the block, what was set before
    the call (before the block, if the same object is entered again)::

        >>> clampgrad.set_pin("inclusive")
        <clampgrad.set_pin: inclusive>
        >>> with clampgrad.set_pin("min_norm"):
        ...     clampgrad.pin.current()
        'min_norm'
        >>> clampgrad.pin.current()
        'inclusive'
        >>> clampgrad.set_pin(None)
        <clampgrad.set_pin: None>

    A thread that is in a block of :class:`pin` keeps the pin of that block, also inside a block of
    ``set_pin``. All threads share what is set: if several have blocks of ``set_pin`` that overlap,
    the one that ends last decides. To pin only the current thread, use :class:`pin`.
    ``clampgrad run`` and the variable CLAMPGRAD_GRADIENT pin in the same way as a call does, so
    that None ends their pin, too, in this process.

    Args:
        gradient: as in :class:`pin`, but for None.
        maximize: as in :class:`pin`.

    Raises:
        TypeError, ValueError: as in :class:`pin`; or CLAMPGRAD_VERBOSE has a value that it cannot
            have. Nothing is set then.
        TypeError: it is used as a decorator. What the call has set is taken back.
    """

    def __init__(self, gradient: Pinned | None, *, maximize: bool = False) -> None:
        self._name = resolve_pin_name(gradient, maximize)
        if self._name is not None:
            verbose.is_wanted()  # raises for a wrong value, before anything is pinned
            ensure_hooks_installed()
        # What each block of this object sets at its end. The call begins the first of them.
        self._outer_names = [state.set_process_pin(self._name)]
        self._is_entered = False
        if self._name is not None:
            verbose.announce_pin(self._name)

    def __repr__(self) -> str:
        return f"<clampgrad.set_pin: {self._name}>"

    def __enter__(self) -> set_pin:
        # Again, because another pin may have been set since, if the object was kept.
        previous = state.set_process_pin(self._name)
        if self._is_entered:
            self._outer_names.append(previous)
        self._is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        # An ExitStack may leave what it has not entered, or what has been left already.
        self._is_entered = True
        if self._outer_names:
            state.set_process_pin(self._outer_names.pop())

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self.__exit__()
        raise TypeError(
            "clampgrad.set_pin pins the process, and decorates nothing: decorate with clampgrad.pin"
        )


def set_pin_in_words(text: str) -> None:
    """Sets a pin as CLAMPGRAD_GRADIENT names it: `maximize` may follow the name, after a comma."""
    name, *words = (word.strip() for word in text.split(","))
    if words not in ([], ["maximize"]):
        raise ValueError(f"{words[0]!r} is not part of a pin; after the name may come maximize")
    set_pin(name, maximize=bool(words))
