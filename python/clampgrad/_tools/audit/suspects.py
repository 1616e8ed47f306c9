"""Other calls that a release of PyTorch changed: those of the table, where its condition was met.

A call of which the condition was not met is innocent, and is not kept. Where that cannot be seen
cheaply (on a GPU, which was not compared; inside ``torch.func``), it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.distributions import Multinomial
from torch.optim.optimizer import register_optimizer_step_pre_hook

from clampgrad._contract.changes import CHANGES, Change
from clampgrad._tools.audit.callers import Caller, is_inside, led_here
from clampgrad._torch.quiet import quietly
from clampgrad._torch.surroundings import in_forward_mode, unseen

SIXTEEN_BITS = (torch.bfloat16, torch.float16)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
EXTREMA = ("maximum", "minimum", "fmax", "fmin")

# Functions in Python that function modes are not told of, and functions which they call.
UNANNOUNCED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torch.nn.init.trunc_normal_": (
        torch.nn.init.trunc_normal_,
        (Tensor.normal_, Tensor.uniform_),
    ),
    "torch.distributions.Multinomial.entropy": (Multinomial.entropy, (torch.lgamma,)),
}


class Key(NamedTuple):
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


Suspected: TypeAlias = dict[Key, Suspect]


class Suspects:
    """Looks at the calls of one audit."""

    def __init__(self, compared: tuple[str, ...]) -> None:
        self.found: Suspected = {}
        self.functions: dict[Any, list[Change]] = {}
        self._of = {c.id: c for c in CHANGES.values() if c.is_between(compared)}
        for change in self._of.values():
            for name in change.calls:
                for function in _functions(name):
                    self.functions.setdefault(function, []).append(change)

    def begin(self) -> None:
        self._hook = register_optimizer_step_pre_hook(self._steps)

    def end(self) -> None:
        self._hook.remove()

    def called(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """A function that a row of the table names was called."""
        changes = self.functions[function]
        inside = [
            change
            for change in changes
            for name in change.calls
            if name in UNANNOUNCED and is_inside(UNANNOUNCED[name][0].__code__)
        ]
        call = Called(args, kwargs, result)
        for change in inside or [c for c in changes if not UNANNOUNCED.keys() & c.calls]:
            self._judge(change, call)

    def told(self, packet: str, args: tuple[Any, ...]) -> None:
        """A kernel of the clamp family was called."""
        x, *bounds = args
        name = packet.rstrip("_")
        if name in EXTREMA:
            if in_forward_mode():
                self._add_if_between("extrema-tangent", None)
            if name in ("fmax", "fmin") and "extrema-nan" in self._of:
                self._judge(self._of["extrema-nan"], Called(args, {}, None))
        elif isinstance(x, Tensor) and x.dtype in UNSIGNED and _is_negative(bounds):
            self._add_if_between("clamp-unsigned", True)

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        change = self._of.get("muon-bfloat16")
        if change and type(optimizer).__name__ == "Muon":
            for group in optimizer.param_groups:
                if not group["nesterov"] and any(
                    p.dtype is torch.bfloat16 for p in group["params"]
                ):
                    self._add(change, True, "Muon.step")

    def _judge(self, change: Change, call: "Called") -> None:
        try:
            with quietly(), unseen():
                met = CONDITIONS[change.id](call)
        except Exception:  # nothing can be asked of these Tensors
            met = None
        if met is not False:
            self._add(change, met)

    def _add_if_between(self, name: str, met: bool | None, function: str = "") -> None:
        if name in self._of:
            self._add(self._of[name], met, function)

    def _add(self, change: Change, met: bool | None, function: str = "") -> None:
        where, outermost = led_here()
        function = function or outermost.name
        key = Key(change.id, function, where)
        if key not in self.found:
            self.found[key] = Suspect(
                change=change.id,
                function=function,
                **where._asdict(),
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
        suspect = self.found[key]
        suspect.calls += 1
        suspect.met = suspect.met or met


def _functions(name: str) -> list[Any]:
    """What a function mode is told of, where a function is called; none where torch has none."""
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


class Called(NamedTuple):
    """A call that has returned."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any

    def get(self, index: int, *names: str, default: Any = None) -> Any:
        """The argument at that position or of one of those names."""
        if index < len(self.args):
            return self.args[index]
        return next((self.kwargs[n] for n in names if n in self.kwargs), default)

    @property
    def input(self) -> Any:
        return self.get(0, "input", "tensor", "query", "A")


def _differentiated(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled()


def _has_nan(x: Any) -> bool:
    return bool(torch.as_tensor(x).isnan().any())


def _is_negative(bounds: Sequence[Any]) -> bool:
    return any(isinstance(bound, (int, float)) and bound < 0 for bound in bounds)


def _random(least: int) -> Callable[[Called], bool]:
    def met(c: Called) -> bool:
        made = c.result if isinstance(c.result, Tensor) else c.input
        return made.dtype in SIXTEEN_BITS and made.is_cpu and made.numel() >= least

    return met


def _det(c: Called) -> bool:
    x = c.input
    return _differentiated(x) and x.shape[-2:] == (1, 1) and bool((x == 0).any())


def _is_inf(c: Called) -> bool:
    return float(c.get(1, "norm_type")) == float("inf")


def _attention(c: Called) -> bool | None:
    query = c.input
    if query.dim() != 3 or c.get(4, "dropout_p", default=0.0):
        return False
    if not query.is_cpu or c.get(3, "attn_mask") is not None:
        return None
    return not all(bool(t.isfinite().all()) for t in (query, c.get(1, "key"), c.get(2, "value")))


def _attention_gradient(c: Called) -> bool | None:
    causal = c.get(5, "is_causal", default=False)
    return _attention(c) if causal and _differentiated(c.get(2, "value")) else False


def _ldexp(c: Called) -> bool:
    exponent = c.get(1, "other")
    is_integer = isinstance(exponent, Tensor) and not exponent.is_floating_point()
    return is_integer and c.result.requires_grad and bool((exponent < 0).any())


def _quantile(c: Called) -> bool | None:
    """Whether an element that a quantile takes is equal to another one."""
    x, q, dim = c.input, c.get(1, "q"), c.get(2, "dim")
    if not _differentiated(x):
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


def _extrema_nan(c: Called) -> bool:
    return any(map(_differentiated, c.args)) and any(map(_has_nan, c.args))


CONDITIONS: dict[str, Callable[[Called], bool | None]] = {
    "det-1x1": _det,
    "normal-16-bit": _random(16),
    "uniform-16-bit": _random(1),
    "trunc-normal": lambda c: True,
    "lp-pool-value": _is_inf,
    "lp-pool-gradient": lambda c: _is_inf(c) and _differentiated(c.input),
    "attention-3d-value": _attention,
    "attention-3d-gradient": _attention_gradient,
    "ldexp-negative": _ldexp,
    "chebyshev-nan": lambda c: _has_nan(c.input),
    "polynomials-nan": lambda c: _has_nan(c.input),
    "quantile-ties": _quantile,
    "bessel-gradient": lambda c: _differentiated(c.input),
    "extrema-nan": _extrema_nan,
    "i1-nan": lambda c: _differentiated(c.input) and _has_nan(c.input),
    "multinomial-entropy": lambda c: c.input.dtype is torch.float64,
    "cholesky-qr": lambda c: True,
}
