"""Finds other calls that a release of PyTorch changed: those of the table whose condition was met.

A call is no suspect if its condition was not met. It is one if that cannot be seen cheaply (on a
GPU, which was not compared; inside ``torch.func``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Multinomial
from torch.optim.optimizer import register_optimizer_step_post_hook

from clampgrad._contract.changes import CHANGES, Change
from clampgrad._tools.audit.callers import Caller, find_call_origin, is_called_by
from clampgrad._tools.audit.observer import ResultHandler
from clampgrad._torch.surroundings import hidden_from_modes, in_forward_mode
from clampgrad._torch.torchs_functions import EXTREMA

SIXTEEN_BITS = (torch.bfloat16, torch.float16)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)

# Functions in Python whose calls function modes do not handle, and functions which they call.
UNANNOUNCED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torch.nn.init.trunc_normal_": (
        torch.nn.init.trunc_normal_,
        (Tensor.normal_, Tensor.uniform_),
    ),
    "torch.distributions.Multinomial.entropy": (Multinomial.entropy, (torch.lgamma,)),
}


class SuspectKey(NamedTuple):
    """The key of a suspect: a place in the code, and a row of the table."""

    change: str
    function: str
    caller: Caller


@dataclass
class Suspect:
    """Calls that a release changed, or may have changed, at one place in the code.

    Attributes:
        change: the name of the change.
        function: the function that the program calls.
        file: the file of the call.
        line: its line.
        module: the path of the module that made the call, or ``""`` outside of modules.
        since: the first release that has the change.
        until: the first release that does not have it any more, or ``""``.
        kind: ``"silent"``, or ``"error since"`` if the call raises an error from then on.
        what: what changed.
        condition: under which condition, or ``""`` if always.
        met: whether the condition was met; None if that could not be seen.
        calls: how many calls there were, of which the condition was met or could not be seen.
        restored: whether a pin restores what was before.
        upstream: the number of the pull request, or None.
    """

    change: str
    function: str
    file: str
    line: int
    module: str
    since: str
    until: str
    kind: str
    what: str
    condition: str
    met: bool | None
    calls: int
    restored: bool
    upstream: int | None


class Suspects:
    """Judges the calls of one audit."""

    def __init__(self, compared: tuple[str, ...]) -> None:
        self.by_key: dict[SuspectKey, Suspect] = {}
        self.functions: dict[Any, list[Change]] = {}  # what changed, by function
        self._changes = {c.id: c for c in CHANGES.values() if c.is_between(compared)}
        for change in self._changes.values():
            for name in change.calls:
                for function in _functions_to_handle(name):
                    self.functions.setdefault(function, []).append(change)

    def begin(self) -> None:
        self._hook = register_optimizer_step_post_hook(self._judge_optimizer)

    def end(self) -> None:
        self._hook.remove()

    def judge_call(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Judges a call of a function that a row of the table names."""
        changes = self.functions[function]
        of_unannounced_caller = [
            change
            for change in changes
            for name in change.calls
            if name in UNANNOUNCED and is_called_by(UNANNOUNCED[name][0].__code__)
        ]
        of_function = [change for change in changes if not UNANNOUNCED.keys() & change.calls]
        call = FinishedCall(args, kwargs, result)
        for change in of_unannounced_caller or of_function:
            self._judge(change, call)

    def judge_kernel_call(self, packet: str, args: tuple[Any, ...]) -> ResultHandler | None:
        """Judges a call of a kernel of the clamp family before it runs; returns what adds it once
        it has a result."""
        x, *bounds = args
        name = packet.rstrip("_")
        suspected: dict[str, bool | None] = {}
        if name in EXTREMA:
            if in_forward_mode():
                suspected["extrema-tangent"] = None
            if name in ("fmax", "fmin") and "extrema-nan" in self._changes:
                suspected["extrema-nan"] = _is_met("extrema-nan", FinishedCall(args, {}, None))
        elif isinstance(x, Tensor) and x.dtype in UNSIGNED and _is_negative(bounds):
            suspected["clamp-unsigned"] = True
        judged = [(id, met) for id, met in suspected.items() if id in self._changes]
        if all(met is False for _, met in judged):
            return None

        def add(result: Any) -> None:
            for id, met in judged:
                self._add(self._changes[id], met)

        return add

    def _judge_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        change = self._changes.get("muon-bfloat16")
        if change and type(optimizer).__name__ == "Muon":
            for group in optimizer.param_groups:
                if not group["nesterov"] and any(
                    p.dtype is torch.bfloat16 for p in group["params"]
                ):
                    self._add(change, True, "Muon.step")

    def _judge(self, change: Change, call: "FinishedCall") -> None:
        self._add(change, _is_met(change.id, call))

    def _add(self, change: Change, met: bool | None, function: str = "") -> None:
        """Adds a call, unless it is known not to meet the condition."""
        if met is False:
            return
        caller, outermost = find_call_origin()
        function = function or outermost.name
        key = SuspectKey(change.id, function, caller)
        if key not in self.by_key:
            self.by_key[key] = Suspect(
                change=change.id,
                function=function,
                **caller._asdict(),
                since=change.since,
                until=change.until,
                kind=change.kind,
                what=change.what,
                condition=change.condition,
                met=met,
                calls=0,
                restored=change.pin == "restored",
                upstream=change.upstream,
            )
        suspect = self.by_key[key]
        suspect.calls += 1
        suspect.met = suspect.met or met


def _is_met(change: str, call: "FinishedCall") -> bool | None:
    """Whether the condition of a change was met; None if these Tensors have no values that can be
    read."""
    try:
        with hidden_from_modes():
            return CONDITIONS[change](call)
    except Exception:
        return None


def _functions_to_handle(name: str) -> list[Any]:
    """Returns the functions whose calls a function mode handles, where the program calls the one of
    that name; none if torch has none of that name."""
    if name in UNANNOUNCED:
        return list(UNANNOUNCED[name][1])
    module, _, attribute = name.removeprefix("torch.").rpartition(".")
    try:
        owner: Any = torch
        for part in filter(None, module.split(".")):
            owner = getattr(owner, part)
        return [getattr(owner, attribute)]
    except AttributeError:
        return []


# ---- Whether a condition was met -----------------------------------------------------------------


class FinishedCall(NamedTuple):
    """A call that has returned."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any

    def get(self, index: int, *names: str, default: Any = None) -> Any:
        """Returns the argument at that position or of one of those names."""
        if index < len(self.args):
            return self.args[index]
        return next((self.kwargs[n] for n in names if n in self.kwargs), default)

    @property
    def input(self) -> Any:
        return self.get(0, "input", "tensor", "query", "A")


def _is_differentiated(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled()


def _has_nan(x: Any) -> bool:
    return bool(torch.as_tensor(x).isnan().any())


def _is_negative(bounds: Sequence[Any]) -> bool:
    return any(isinstance(bound, (int, float)) and bound < 0 for bound in bounds)


def _make_random_condition(least: int) -> Callable[[FinishedCall], bool]:
    def is_met(c: FinishedCall) -> bool:
        random = c.result if isinstance(c.result, Tensor) else c.input
        return random.dtype in SIXTEEN_BITS and random.is_cpu and random.numel() >= least

    return is_met


def _is_det_of_1x1_zero(c: FinishedCall) -> bool:
    x = c.input
    return _is_differentiated(x) and x.shape[-2:] == (1, 1) and bool((x == 0).any())


def _has_inf_norm(c: FinishedCall) -> bool:
    return float(c.get(1, "norm_type")) == float("inf")


def _has_not_finite_row(c: FinishedCall) -> bool | None:
    query = c.input
    if query.dim() != 3 or c.get(4, "dropout_p", default=0.0):
        return False
    if not query.is_cpu or c.get(3, "attn_mask") is not None:
        return None
    return not all(bool(t.isfinite().all()) for t in (query, c.get(1, "key"), c.get(2, "value")))


def _has_not_finite_causal_row(c: FinishedCall) -> bool | None:
    causal = c.get(5, "is_causal", default=False)
    return _has_not_finite_row(c) if causal and _is_differentiated(c.get(2, "value")) else False


def _has_negative_exponent(c: FinishedCall) -> bool:
    exponent = c.get(1, "other")
    is_integer = isinstance(exponent, Tensor) and not exponent.is_floating_point()
    return is_integer and c.result.requires_grad and bool((exponent < 0).any())


def _takes_tied_quantile(c: FinishedCall) -> bool | None:
    """Whether a quantile takes an element that is equal to another one."""
    x, q, dim = c.input, c.get(1, "q"), c.get(2, "dim")
    if not _is_differentiated(x):
        return False
    if not x.is_cpu:
        return None
    x = x.detach()
    x = x.flatten() if dim is None else x.movedim(dim, -1)
    x = x.sort(dim=-1).values  # NaN last
    rank = torch.as_tensor(q, dtype=x.dtype).reshape(-1, *[1] * x.dim()) * (
        (~x.isnan()).sum(-1, keepdim=True) - 1
    ).clamp(min=0)
    equal = torch.nn.functional.pad(x[..., 1:] == x[..., :-1], (1, 1))
    is_tied = (equal[..., 1:] | equal[..., :-1]).expand(*rank.shape[:-1], x.shape[-1])
    taken = torch.cat([rank.floor(), rank.ceil()], -1).long()
    return bool(is_tied.gather(-1, taken).any())


def _differentiates_nan(c: FinishedCall) -> bool:
    return any(map(_is_differentiated, c.args)) and any(map(_has_nan, c.args))


CONDITIONS: dict[str, Callable[[FinishedCall], bool | None]] = {
    "det-1x1": _is_det_of_1x1_zero,
    "normal-16-bit": _make_random_condition(16),
    "uniform-16-bit": _make_random_condition(1),
    "trunc-normal": lambda c: True,
    "lp-pool-value": _has_inf_norm,
    "lp-pool-gradient": lambda c: _has_inf_norm(c) and _is_differentiated(c.input),
    "attention-3d-value": _has_not_finite_row,
    "attention-3d-gradient": _has_not_finite_causal_row,
    "ldexp-negative": _has_negative_exponent,
    "chebyshev-nan": lambda c: _has_nan(c.input),
    "polynomials-nan": lambda c: _has_nan(c.input),
    "quantile-ties": _takes_tied_quantile,
    "bessel-gradient": lambda c: _is_differentiated(c.input),
    "extrema-nan": _differentiates_nan,
    "i1-nan": lambda c: _is_differentiated(c.input) and _has_nan(c.input),
    "multinomial-entropy": lambda c: c.input.dtype is torch.float64,
    "cholesky-qr": lambda c: True,
}
