"""Every way to call an operator: a function of the Tensor arguments, and what it accepts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import clampgrad
from oracle import CLAMPS, EXACT


def exact(cell):
    return cell.gradient in EXACT


def least_norm(cell):
    return (cell.gradient, cell.maximize) == ("min_norm", False)


def one_kind(cell):
    """No overload of an operator takes a number and a Tensor."""
    return not cell.mixed


def is_clamp(cell):
    return cell.operator in CLAMPS


def keeps_x(cell):
    """Whether a call in place fits: neither the shape nor the dtype of x changes."""
    x, value = cell.args[0], cell.value
    return value.shape == torch.Size(x.shape) and value.dtype == getattr(torch, x.dtype)


@dataclass(frozen=True)
class Form:
    make: Callable  # cell -> f(*tensors)
    accepts: Callable = lambda cell: True
    in_place: bool = False
    writes: bool = False  # has out=: values alone
    pin: bool = False
    process: bool = False  # a pin of the process, around the whole context
    module: bool = False


def keywords(cell):
    return {"gradient": cell.gradient} | ({"maximize": True} if cell.maximize else {})


def pairs(x, seed):
    """A view that has all elements but the first and the last twice."""
    x, n = x.view(-1), x.numel()
    return (
        x.unfold(0, min(2, n), 1) if seed % 2 else x.as_strided((max(n - 1, 1), min(2, n)), (1, 1))
    )


def overlapping(function, seed):
    """The same on a view that overlaps itself."""

    def written(x, *bounds, **more):
        x = x.contiguous()
        function(pairs(x, seed), *bounds, **more)
        return x

    return written


def of_overlapping(function, seed):
    """Each element of the result is read at one of its places."""

    def read(x, *bounds, **more):
        if seed % 3 == 2:
            return function(x.expand(2, *x.shape), *bounds, **more)[1]
        y, n = function(pairs(x.contiguous(), seed), *bounds, **more), int(x.numel())
        return y.reshape(-1)[[*range(0, 2 * n - 2, 2), max(2 * n - 3, 0)]].view(x.shape)

    return read


def called(function, cell, in_place=False, **more):
    """function(x, bounds...), without a bound that is None where one must be given by name.
    `f.itself` writes its x in place, and f a copy."""

    def call(*tensors):
        x, *bounds = cell.fill(tensors)
        if cell.operator == "clamp":
            given = {n: b for n, b in zip(("min", "max"), bounds) if b is not None}
            return function(x, **given, **more)
        return function(x, *bounds, **more)

    def f(x, *tensors):
        return call(x.clone() if in_place else x, *tensors)

    f.itself = call
    return f


def itself(function, seed):
    return function


def make_public_call(suffix="", view=itself):
    def make(cell):
        function = view(getattr(clampgrad, cell.operator + suffix), cell.seed)
        return called(function, cell, bool(suffix), **keywords(cell))

    return make


def has(namespace, suffix):
    return lambda cell: hasattr(namespace, cell.operator + suffix)


def packet(suffix=""):
    """torch.ops, by the overload: resolution is torch's own business."""

    def make(cell):
        operator = getattr(torch.ops.clampgrad, cell.operator + suffix)
        tensors = is_clamp(cell) and not cell.numbers
        operator = operator.Tensor if tensors else operator.default
        more = {} if "mingrad" in suffix else keywords(cell)
        return called(operator, cell, suffix.endswith("_"), **more)

    return make


def pinned(call, in_place):
    def make(cell):
        pin = clampgrad.pin(cell.gradient, maximize=cell.maximize)
        f = called(call(cell), cell, in_place)

        def under_the_pin(*tensors):
            with pin:
                return f(*tensors)

        under_the_pin.pin, under_the_pin.bare, under_the_pin.itself = pin, f, f.itself
        return under_the_pin

    return make


def torchs(call, in_place):
    return lambda cell: called(call(cell), cell, in_place)


def function(cell):
    return getattr(torch, cell.operator)


def method(suffix="", view=itself):
    return lambda cell: view(getattr(torch.Tensor, cell.operator + suffix), cell.seed)


def with_grad_name(cell):
    return called(clampgrad.clamp_with_grad, cell, maximize=cell.maximize)


def out(cell):
    function = getattr(clampgrad, cell.operator)
    return called(
        lambda *a, **k: function(*a, **k, out=torch.empty(0, dtype=cell.value.dtype)),
        cell,
        **keywords(cell),
    )


def bounds_of(cell, args):
    if cell.operator == "clamp_min":
        return args[1], None
    if cell.operator == "clamp_max":
        return None, args[1]
    return args[1:]


def module(in_place):
    """nn.Clamp; the call makes it if its bounds are Tensors that a context makes."""

    def make(cell):
        keywords = {"gradient": cell.gradient, "maximize": cell.maximize, "inplace": in_place}

        def f(*tensors):
            x, *bounds = cell.fill(tensors)
            made = f.module or clampgrad.nn.Clamp(*bounds_of(cell, [x, *bounds]), **keywords)
            return made(x.clone() if in_place else x)

        bounds = bounds_of(cell, cell.args)
        f.module = clampgrad.nn.Clamp(*bounds, **keywords) if cell.numbers else None
        return f

    return make


TWINS = {
    ("clamp_min", (0,)): clampgrad.nn.ReLU,
    ("clamp", (0, 6)): clampgrad.nn.ReLU6,
    ("clamp", (-1, 1)): clampgrad.nn.Hardtanh,
}


def twin(in_place):
    def make(cell):
        def f(x):
            return f.module(x.clone() if in_place else x)

        make = TWINS[cell.operator, cell.args[1:]]
        f.module = make(inplace=in_place, **keywords(cell))
        return f

    return make


def has_twin(cell):
    return cell.numbers and (cell.operator, cell.args[1:]) in TWINS and cell.args[0].floating


def both(*conditions):
    return lambda cell: all(c(cell) for c in conditions)


has_in_place = both(is_clamp, keeps_x)
overlaps = both(has_in_place, lambda cell: cell.numbers)
# What is read of a place twice gets no gradient there, but from `restoring`.
is_read_in_parts = both(
    is_clamp, lambda cell: cell.numbers and not cell.empty and cell.gradient != "restoring"
)
pins = lambda cell: (exact(cell) or is_clamp(cell)) and one_kind(cell)  # noqa: E731

TORCHS = {  # torch's own calls: which, whether in place, and what they accept
    "function": (function, False, pins),
    "method": (method(), False, pins),
    "method, overlapping": (method("", of_overlapping), False, both(pins, is_read_in_parts)),
    "method in place": (method("_"), True, both(pins, has_in_place)),
    "method in place, overlapping": (method("_", overlapping), True, both(pins, overlaps)),
}
FORMS = {
    "function": Form(make_public_call()),
    "in place": Form(make_public_call("_"), has_in_place, in_place=True),
    "in place, overlapping": Form(make_public_call("_", overlapping), overlaps, in_place=True),
    "function, overlapping": Form(make_public_call("", of_overlapping), is_read_in_parts),
    "out": Form(out, writes=True),
    "clamp_with_grad": Form(
        with_grad_name, lambda cell: (cell.operator, cell.gradient) == ("clamp", "with_grad")
    ),
    "torch.ops": Form(packet(), one_kind),
    "torch.ops in place": Form(packet("_"), both(has_in_place, one_kind), in_place=True),
    "mingrad": Form(
        packet("_mingrad"),
        both(least_norm, one_kind, has(torch.ops.clampgrad, "_mingrad")),
    ),
    "mingrad in place": Form(
        packet("_mingrad_"),
        both(least_norm, one_kind, has_in_place, has(torch.ops.clampgrad, "_mingrad_")),
        in_place=True,
    ),
    **{
        f"{how}{name}": Form(
            made(call, in_place), accepts, in_place=in_place, pin=True, process=how == "process, "
        )
        for how, made in {"pinned ": pinned, "process, ": torchs}.items()
        for name, (call, in_place, accepts) in TORCHS.items()
    },
    "module": Form(module(False), is_clamp, module=True),
    "module in place": Form(module(True), has_in_place, in_place=True, module=True),
    "nn.ReLU and kin": Form(twin(False), has_twin, module=True),
    "nn.ReLU and kin in place": Form(twin(True), has_twin, in_place=True, module=True),
}
