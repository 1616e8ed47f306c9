"""Everything around a call that its gradient has to survive.

A context takes a form's function and a cell, and raises if a result or gradient is wrong.
Most are one function (f, leaves, args, g) -> (value, gradients of the leaves), which
`reverse_context` compares with the reference.
"""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import torch
import torch.autograd.forward_ad as fwad
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from testing.cases import has_kernels
from testing.matrix import reference
from testing.matrix.cells import (
    FINITE,
    Arg,
    compute_expected,
    expected,
    gradients,
    numbers,
    reduced_to,
)
from testing.matrix.forms import FORMS


def always(cell):
    return True


def has_gradient(cell):
    return expected(cell).g is not None


@dataclass(frozen=True)
class Context:
    run: Callable  # (f, cell) -> None, or raises
    accepts: Callable = always
    costly: bool = False  # a compiler: sampled
    records_nothing: bool = False


CONTEXTS: dict[str, Context] = {}


# ---- Comparing -----------------------------------------------------------------------------------


class Wrong(AssertionError):
    pass


def check_same(what, actual, expected, exact=True):
    """Equal values, NaN equal to NaN, same dtype and shape; to rounding after a sum."""
    kind, expected_kind = ((t.dtype, tuple(t.shape)) for t in (actual, expected))
    if kind != expected_kind:
        raise Wrong(f"{what}: {kind} instead of {expected_kind}")
    a, b = actual.detach(), expected.detach()
    equal = (a == b) | (a.isnan() & b.isnan())
    if not exact and a.dtype.is_floating_point:
        # Relative to the terms, a few of about 1, where a sum cancels.
        terms = torch.finfo(torch.promote_types(a.dtype, torch.float32)).eps
        rounding = torch.finfo(a.dtype).eps
        equal |= torch.isclose(a.double(), b.double(), rtol=4 * rounding, atol=64 * terms)
        # Whether a sum overflows depends on its order.
        most = torch.finfo(a.dtype).max * (1 - 4 * rounding)
        equal |= (a.abs() >= most) & (b.abs() >= most) & (a.sign() == b.sign())
    if not equal.all():
        raise Wrong(f"{what}: {a.tolist()} instead of {b.tolist()}")


def check_gradients(cell, leaves, actual, unreduced_gradients, where="gradient"):
    actual = iter(actual)
    for i, (leaf, share) in enumerate(zip(leaves, unreduced_gradients)):
        if leaf.requires_grad:
            gradient = next(actual)
            gradient = torch.zeros_like(leaf) if gradient is None else gradient
            summed = share.shape != leaf.shape
            check_same(
                f"{where} of Tensor {i}", gradient, reduced_to(share, leaf), exact=not summed
            )


# ---- Reverse mode --------------------------------------------------------------------------------


def leaves_of(cell):
    return [t.clone().requires_grad_(w) for t, w in zip(cell.tensors, cell.requires_grad)]


def leaves_that_require_grad(leaves):
    return [leaf for leaf in leaves if leaf.requires_grad]


def grad(y, leaves, g, **more):
    return torch.autograd.grad(y, leaves_that_require_grad(leaves), g, allow_unused=True, **more)


def check_result(cell, leaves, y, actual):
    should = expected(cell)
    check_same("value", y, should.value)
    if not should.unreduced_gradients:
        assert not y.requires_grad, "a gradient where torch has none"
    else:
        check_gradients(cell, leaves, actual, should.unreduced_gradients)


def reverse_context(name, accepts=always, costly=False):
    """Adds a context from (f, leaves, args, g) -> (value, gradients)."""

    def add(context):
        def run(f, cell):
            leaves = leaves_of(cell)
            args = cell.laid_out(leaves)
            g = expected(cell).g
            y, gradients = (f(*args), []) if g is None else context(f, leaves, args, g.clone())
            check_result(cell, leaves, y, gradients)

        CONTEXTS[name] = Context(run, accepts, costly)
        return context

    return add


def whole_context(name, accepts=always, costly=False, records_nothing=False):
    """Adds a context that compares by itself: (f, cell) -> None."""

    def add(run):
        CONTEXTS[name] = Context(run, accepts, costly, records_nothing)
        return run

    return add


@reverse_context("plain")
def plain(f, leaves, args, g):
    y = f(*args)
    return y, grad(y, leaves, g)


@reverse_context("backward() into .grad")
def backward(f, leaves, args, g):
    y = f(*args)
    y.backward(g)
    return y, [leaf.grad for leaf in leaves_that_require_grad(leaves)]


@reverse_context("retain_graph, twice")
def retain_graph(f, leaves, args, g):
    y = f(*args)
    first = grad(y, leaves, g, retain_graph=True)
    second = grad(y, leaves, g)
    for a, b in zip(first, second):
        check_same("second gradient", a, b)
    return y, first


@reverse_context("one gradient at a time")
def one_at_a_time(f, leaves, args, g):
    """Each call asks for only one of the gradients that were being differentiated."""
    y = f(*args)
    return y, [
        grad(y, [leaf], g, retain_graph=True)[0] for leaf in leaves_that_require_grad(leaves)
    ]


@reverse_context("expanded gradient of sum()")
def expanded_gradient(f, leaves, args, g):
    y = f(*args)
    grad(y.sum(), leaves, None, retain_graph=True)  # of strides 0
    return y, grad(y, leaves, g)


@reverse_context("gradient without memory")
def gradient_of_zeros(f, leaves, args, g):
    """A ZeroTensor, as forward mode makes of what has no tangent."""
    y = f(*args)
    zeros = torch._efficientzerotensor(g.shape, dtype=g.dtype, device=g.device)
    gradients = [grad(y, leaves, z, retain_graph=True) for z in (zeros, torch.zeros_like(g))]
    for lazy, dense in zip(*gradients):
        if dense is not None:
            check_same("gradient of zeros", lazy + 0, dense)
    return y, grad(y, leaves, g)


@whole_context("x without memory")
def input_of_zeros(f, cell):
    """A ZeroTensor: compared with zeros in memory."""
    shape, dtype = cell.args[0].shape, getattr(torch, cell.args[0].dtype)
    zeros = replace(cell, args=(replace(cell.args[0], values=(0.0,) * prod(shape)), *cell.args[1:]))
    leaves = leaves_of(zeros)
    x = torch._efficientzerotensor(shape, dtype=dtype, device=leaves[0].device)
    leaves[0] = x.requires_grad_(zeros.requires_grad[0])
    y = f(*leaves)
    should = expected(zeros)
    check_result(zeros, leaves, y, [] if should.g is None else grad(y, leaves, should.g.clone()))


@reverse_context("gradient of another dtype")
def gradient_of_another_dtype(f, leaves, args, g):
    """Autograd casts it to the dtype of the result."""
    y = f(*args)
    other = torch.float64 if g.dtype == torch.float32 else torch.float32
    return y, grad(y, leaves, g.to(other))


@reverse_context("gradient with gaps")
def gradient_with_gaps(f, leaves, args, g):
    y = f(*args)
    return y, grad(y, leaves, torch.stack((g, g), -1)[..., 0])


@reverse_context("anomaly mode")
def anomaly(f, leaves, args, g):
    with torch.autograd.detect_anomaly(check_nan=False):
        return plain(f, leaves, args, g)


def add_forward_context(name, manager):
    """Adds a context in which the forward runs."""

    @reverse_context(name)
    def context(f, leaves, args, g):
        with manager():
            y = f(*args)
        return y, grad(y, leaves, g)


add_forward_context(
    "autocast", lambda: torch.autocast(torch.get_default_device().type, torch.bfloat16)
)


@whole_context("input and output changed in place")
def changed_after(f, cell):
    """The gradient of the public functions stays; elsewhere it stays or
    raises, by autograd's rule."""
    leaves, should = leaves_of(cell), expected(cell)
    args = [a.clone() for a in cell.laid_out(leaves)]
    y = f(*args)
    kept = y.detach().clone()
    if should.g is None:
        return check_result(cell, leaves, kept, [])
    with torch.no_grad():
        y.fill_(99)
        args[0].fill_(99)
    try:
        gradients = grad(y, leaves, should.g.clone())
    except RuntimeError as e:
        if survives_later_writes(cell) or "modified by an inplace operation" not in str(e):
            raise
    else:
        check_result(cell, leaves, kept.requires_grad_(), gradients)


def survives_later_writes(cell):
    """The forms for which the contract promises it, with bounds that leave x on the fast path."""
    return (
        has_kernels()
        and cell.form in ("function", "in place")
        and cell.args[0].layout not in ("neg", "conj")
    )


def keeps_signs(cell):
    """Lazy negation turns the sign of a blocked 0, and a sum loses the sign of a zero."""
    alike = len({a.shape for a in cell.tensor_args}) == 1
    written_once = "overlapping" not in cell.form
    return (
        alike
        and written_once
        and not any(a.layout in ("neg", "conj", "gaps") for a in cell.tensor_args)
    )


def same_signs(what, actual, expected):
    """NaN apart, whose sign means nothing."""
    differ = (actual.signbit() != expected.signbit()) & ~expected.isnan()
    if differ.any():
        raise Wrong(f"sign of {what}: {actual.tolist()} instead of {expected.tolist()}")


@whole_context("signs of zeros", accepts=keeps_signs)
def signs(f, cell):
    """What is blocked is +0, and what passes keeps its sign. The value has that of torch's own, but
    where two Tensors tie: there torch's vectors and scalars differ."""
    should, leaves = expected(cell), leaves_of(cell)
    y = f(*cell.laid_out(leaves))
    if y.is_floating_point():
        tie = torch.zeros_like(y, dtype=torch.bool) if cell.numbers else y == 0
        same_signs("the value", *(torch.where(tie, 1, t) for t in (y, should.value)))
    if should.g is not None:
        gradients = iter(grad(y, leaves, should.g.clone()))
        for i, (leaf, share) in enumerate(zip(leaves, should.unreduced_gradients)):
            if leaf.requires_grad and (v := next(gradients)) is not None:
                same_signs(f"the gradient of Tensor {i}", v, share.to(v.dtype))


TINY = 1e-40  # subnormal


def can_flush(cell):
    """Elsewhere backward runs in another thread, where numbers are not flushed."""
    return has_gradient(cell) and torch.get_default_device().type == "cpu"


@whole_context("subnormal numbers flushed", accepts=can_flush)
def flushed(f, cell):
    """They tie with 0, for the reference too. Whether a gradient is flushed is left open."""
    tiny = (
        replace(a, values=tuple(v * TINY if abs(v) == 1 else v for v in a.values))
        for a in cell.tensor_args
    )
    cell = replace(cell, args=tuple(cell.fill(tiny)))
    leaves = leaves_of(cell)
    if not torch.set_flush_denormal(True):  # this processor cannot
        return
    try:
        should = compute_expected(cell)
        gradients = iter(grad(f(*cell.laid_out(leaves)), leaves, should.g.clone()))
        for i, (leaf, share) in enumerate(zip(leaves, should.unreduced_gradients)):
            if leaf.requires_grad and (v := next(gradients)) is not None:
                sides = (torch.where(t.abs() < 1e-37, 0, t) for t in (v, reduced_to(share, leaf)))
                check_same(f"gradient of Tensor {i}", *sides, exact=share.shape == leaf.shape)
    finally:
        torch.set_flush_denormal(False)


# ---- Saved tensors -------------------------------------------------------------------------------


def at_an_odd_address(t):
    """Bytes may be anywhere; other dtypes have an alignment of their own."""
    if t.dtype != torch.uint8:
        return t.clone()
    return torch.cat((t.new_zeros(1), t.flatten()))[1:].view(t.shape)


HOOKS = {  # pack, unpack
    "copied": (lambda t: t.clone(), lambda t: t),
    "copied when unpacked": (lambda t: t, lambda t: t.clone()),
    "pickled": (pickle.dumps, pickle.loads),
    "at an odd address": (at_an_odd_address, lambda t: t),
    "cast": (lambda t: (t.dtype, t.to(torch.float64)), lambda packed: packed[1].to(packed[0])),
    "as numpy": (
        lambda t: (
            t.detach().cpu().double().resolve_neg().numpy().copy(),
            {
                "dtype": t.dtype,
                "device": t.device,
            },  # the default device is not that of backward's thread
        ),
        lambda packed: torch.tensor(packed[0], **packed[1]),
    ),
}
for _name, _hooks in HOOKS.items():
    add_forward_context(f"saved tensors {_name}", partial(saved_tensors_hooks, *_hooks))
add_forward_context("save_on_cpu", save_on_cpu)


# ---- Checkpoints ---------------------------------------------------------------------------------


def checkpointed(name, **more):
    @reverse_context(f"checkpoint, {name}")
    def context(f, leaves, args, g):
        y = checkpoint(f, *args, **more)
        y.backward(g)  # autograd.grad does not work with the reentrant kind
        return y, [leaf.grad for leaf in leaves_that_require_grad(leaves)]


def clamps_alone(ctx, op, *args, **keywords):
    clamps = "clamp" in str(op)
    return CheckpointPolicy.MUST_SAVE if clamps else CheckpointPolicy.PREFER_RECOMPUTE


checkpointed("reentrant", use_reentrant=True)
checkpointed("not reentrant", use_reentrant=False)
for _name, _saved in {"selective": clamps_alone, "selective, nothing saved": []}.items():
    _contexts = partial(create_selective_checkpoint_contexts, _saved)
    checkpointed(_name, use_reentrant=False, context_fn=_contexts)


# ---- Many gradients at once, and gradients of gradients ------------------------------------------


def linear(cell):
    return cell.gradient not in ("with_grad", "restoring")


@reverse_context("is_grads_batched")
def batched_gradients(f, leaves, args, g):
    y = f(*args)
    both = torch.stack((g, torch.ones_like(g)))
    gradients = grad(y, leaves, both, is_grads_batched=True)
    return y, [None if v is None else v[0] for v in gradients]


@whole_context("vectorized jacobian", accepts=has_gradient)
def vectorized(f, cell):
    leaves = leaves_of(cell)
    differentiated = [i for i, leaf in enumerate(leaves) if leaf.requires_grad]

    def of_differentiated(*some):
        some = iter(some)
        every = [next(some) if i in differentiated else v for i, v in enumerate(leaves)]
        return f(*cell.laid_out(every))

    given = tuple(leaves[i].detach() for i in differentiated)
    jacobian = torch.autograd.functional.jacobian(of_differentiated, given, vectorize=True)
    value = expected(cell).value
    for n, i in enumerate(differentiated):
        total = jacobian[n].flatten(0, value.dim() - 1) if value.dim() else jacobian[n][None]
        for k in range(min(value.numel(), 4)):
            g = torch.zeros_like(value).flatten()
            g[k] = 1
            args, requires_grad = cell.fill(cell.tensors), cell.spread(cell.requires_grad)
            share = gradients(cell, args, requires_grad, g.view(value.shape))[i]
            check_same(
                f"row {k} of the jacobian by Tensor {i}", total[k], reduced_to(share, leaves[i])
            )


@whole_context("double backward", accepts=has_gradient)
def double_backward(f, cell):
    """The gradient is linear in g, or selects from it; it is constant in everything else."""
    leaves = leaves_of(cell)
    should = expected(cell)
    g = should.g.clone().requires_grad_()
    y = f(*cell.laid_out(leaves))
    gradients = grad(y, leaves, g, create_graph=True)
    check_gradients(cell, leaves, gradients, should.unreduced_gradients)
    every = [numbers(i, leaf.shape, leaf.dtype, FINITE) for i, leaf in enumerate(leaves)]
    tangents = [t for t, w in zip(every, cell.requires_grad) if w]
    pairs = [(v, t) for v, t in zip(gradients, tangents) if v is not None and v.requires_grad]
    if not pairs:
        assert cell.gradient == "restoring" or y.numel() == 0, "no gradient with respect to g"
        return
    of_g, *of_leaves = grad([v for v, _ in pairs], [g, *leaves], [t for _, t in pairs])
    vs = [t if w else None for t, w in zip(every, cell.requires_grad)]
    check_same(
        "gradient of g", of_g, expected_tangent(cell, vs, cell.requires_grad, should.g), exact=False
    )
    for i, v in enumerate(of_leaves):
        if v is not None:
            check_same(f"second gradient {i}", v, torch.zeros_like(v))


def expected_tangent(cell, tangents, requires_grad, g, args=None):
    """The tangent of the result: the transpose of the gradient, or what a selection passes."""
    args = cell.fill(cell.tensors) if args is None else args
    value = cell.forward(args)
    total = torch.zeros_like(value)
    positions = [i for i, a in enumerate(cell.args) if isinstance(a, Arg)]
    for n, t in enumerate(tangents):
        if t is None:
            continue
        t = t.to(value.dtype).expand(value.shape)
        if cell.pseudo and positions[n] == 0:
            total = total + torch.where(passes(cell, args[0].to(value.dtype), value, g), t, 0)
        else:
            # With mixed bounds, a share has the dtype of its argument,
            # which differs for 0-dim ones.
            total = total + gradients(cell, args, cell.spread(requires_grad), t)[n].to(value.dtype)
    return total


def passes(cell, x, y, g):
    """Where the table gives g itself as the pseudo-gradient of x."""
    if cell.gradient == "straight_through":
        return torch.ones_like(x, dtype=torch.bool)
    return reference.pseudo_share(cell.gradient, cell.maximize, x, y, g)


# ---- Forward mode --------------------------------------------------------------------------------


def no_jvp(run):
    try:
        run()
    except NotImplementedError:
        return
    raise Wrong("a tangent instead of NotImplementedError")


def with_tangents(tensors, tangents):
    pairs = zip(tensors, tangents)
    return [x if t is None else fwad.make_dual(x, t.clone()) for x, t in pairs]


def check_tangent(f, cell, tangent_of):
    """tangent_of(x, tangent, ...) -> the result and its tangent, None for 0;
    both are given for each Tensor."""
    should, tensors = expected(cell), cell.tensors
    every = [numbers(cell.seed + i, t.shape, t.dtype, FINITE) for i, t in enumerate(tensors)]
    tangents = [t if w else None for t, w in zip(every, cell.requires_grad)]

    def run():
        return tangent_of(*(t.clone() for t in tensors), *(t for t in tangents if t is not None))

    if not linear(cell):
        return no_jvp(run)
    value, tangent = run()
    check_same("value", value, should.value)
    tangent = torch.zeros_like(value) if tangent is None else tangent
    check_same(
        "tangent",
        tangent,
        expected_tangent(cell, tangents, cell.requires_grad, should.g),
        exact=False,
    )


@whole_context("dual tensors", accepts=has_gradient)
def dual(f, cell):
    def tangent_of(*given):
        tensors, tangents = given[: len(cell.requires_grad)], iter(given[len(cell.requires_grad) :])
        with fwad.dual_level():
            args = with_tangents(
                tensors, [next(tangents) if w else None for w in cell.requires_grad]
            )
            return fwad.unpack_dual(f(*cell.laid_out(args)))

    check_tangent(f, cell, tangent_of)


@whole_context("dual tensors, a level of C++ alone", accepts=has_gradient)
def dual_of_graphs(f, cell):
    """As a compiled graph opens it: torch.autograd.forward_ad does not hear of it."""

    def tangent_of(*given):
        tensors, tangents = given[: len(cell.requires_grad)], iter(given[len(cell.requires_grad) :])
        level = torch._C._enter_dual_level()
        try:
            pairs = zip(tensors, cell.requires_grad)
            duals = [torch._VF._make_dual(x, next(tangents), level) if w else x for x, w in pairs]
            y, tangent = torch._VF._unpack_dual(f(*duals), level)
            return y, None if tangent is None else tangent.clone()
        finally:
            torch._C._exit_dual_level(level)

    check_tangent(f, cell, tangent_of)


@whole_context("dual tensors that require grad", accepts=has_gradient)
def dual_recorded(f, cell):
    """The gradient is what it is without a tangent; if g has one, the gradient's has its shares."""
    should, leaves = expected(cell), leaves_of(cell)
    ones = [torch.ones_like(leaf) if w else None for leaf, w in zip(leaves, cell.requires_grad)]
    along = numbers(cell.seed + 1, should.g.shape, should.g.dtype, FINITE)

    def run():
        with fwad.dual_level():
            args = with_tangents([leaf * 1 for leaf in leaves], ones)
            y = f(*cell.laid_out(args))
            actual = grad(y, leaves, should.g, retain_graph=True)
            dual = grad(y, leaves, fwad.make_dual(should.g.clone(), along))
            tangents = [None if v is None else fwad.unpack_dual(v).tangent for v in dual]
            return y, actual, tangents

    if not linear(cell):
        return no_jvp(run)
    y, actual, tangents = run()
    check_same("value", y, should.value)
    check_gradients(cell, leaves, actual, should.unreduced_gradients)
    args, requires_grad = cell.fill(cell.tensors), cell.spread(cell.requires_grad)
    check_gradients(cell, leaves, tangents, gradients(cell, args, requires_grad, along), "tangent")


@whole_context("one tangent at a time", accepts=has_gradient)
def one_tangent(f, cell):
    """The others are 0, so nothing is rounded: the tangent is exact, whatever it is."""
    tensors, should = cell.tensors, expected(cell)
    for i in (i for i, w in enumerate(cell.requires_grad) if w):
        tangents = [torch.zeros_like(t) if w else None for t, w in zip(tensors, cell.requires_grad)]
        tangents[i] = numbers(cell.seed + i, tensors[i].shape, tensors[i].dtype)

        def run():
            with fwad.dual_level():
                duals = with_tangents([t.clone() for t in tensors], tangents)
                return fwad.unpack_dual(f(*cell.laid_out(duals))).tangent

        if not linear(cell):
            return no_jvp(run)
        true_tangent = expected_tangent(cell, tangents, cell.requires_grad, should.g)
        tangent = run()
        tangent = torch.zeros_like(true_tangent) if tangent is None else tangent
        check_same(f"tangent along Tensor {i}", tangent, true_tangent)


# ---- Two calls -----------------------------------------------------------------------------------


def is_called(cell):
    return not FORMS[cell.form].module and "overlapping" not in cell.form and has_gradient(cell)


def can_reuse_input(cell):
    """Whether the result can be the x of another call, which compares the same bounds."""
    x = cell.args[0]
    return is_called(cell) and (cell.value.dtype, cell.value.shape) == (
        *(getattr(torch, x.dtype), torch.Size(x.shape)),
    )


def twice(f, cell, call):
    """call(f, leaves) -> the result of a second call on the result of
    the first, in place of one x."""
    should, leaves = expected(cell), leaves_of(cell)
    first, requires_grad = cell.fill(cell.tensors), cell.spread(cell.requires_grad)
    second = [should.value, *first[1:]]
    x_and_rest = [True, *requires_grad[1:]]
    of_second = gradients(cell, second, x_and_rest, should.g)
    of_first = gradients(cell, first, requires_grad, of_second[0].to(should.value.dtype))
    y = call(getattr(f, "itself", f), leaves)
    check_same("value", y, cell.forward(second))
    actual = iter(grad(y, leaves, should.g.clone()))
    sums = [reduced_to(of_first[0], leaves[0])]  # what the second call's x gets goes to the first
    # Autograd reduces and casts the gradient of each call before it adds them.
    for leaf, a, b in zip(leaves[1:], of_first[1:], of_second[1:]):
        sums.append(reduced_to(a, leaf) + reduced_to(b, leaf))
    for i, (leaf, true) in enumerate(zip(leaves, sums)):
        if leaf.requires_grad:
            gradient = next(actual)
            gradient = torch.zeros_like(leaf) if gradient is None else gradient
            check_same(f"gradient of Tensor {i}", gradient, true, exact=i == 0)


def on_its_result(f, leaves):
    x, *bounds = leaves
    return f(f(x * 1, *bounds), *bounds)


@whole_context("two calls in place of one x", accepts=can_reuse_input)
def two_calls(f, cell):
    with getattr(f, "pin", nullcontext()):
        twice(f, cell, on_its_result)


# ---- Nothing is recorded -------------------------------------------------------------------------


@whole_context("no_grad", records_nothing=True)
def no_grad(f, cell):
    with torch.no_grad():
        y = f(*cell.laid_out(leaves_of(cell)))
    assert not y.requires_grad
    check_same("value", y, expected(cell).value)


@whole_context("inference mode", records_nothing=True)
def inference(f, cell):
    with torch.inference_mode():
        y = f(*cell.laid_out([t.clone() for t in cell.tensors]))
    assert y.is_inference() and not y.requires_grad
    check_same("value", y, expected(cell).value)


@torch.no_grad()
def torchs_own(cell, tensors):
    """What torch returns for these; for a call in place, x itself."""
    args = cell.fill(tensors)
    return args[0].clone() if FORMS[cell.form].in_place else cell.forward(args)


@whole_context("meta tensors")
def meta(f, cell):
    leaves = [t.to("meta").requires_grad_(w) for t, w in zip(cell.tensors, cell.requires_grad)]
    y = f(*leaves)
    layout, stock_layout = ((t.dtype, t.shape, t.stride()) for t in (y, torchs_own(cell, leaves)))
    if layout != stock_layout:
        raise Wrong(f"{layout} instead of {stock_layout}")
    if expected(cell).g is not None:
        for leaf, v in zip(leaves_that_require_grad(leaves), grad(y, leaves, torch.empty_like(y))):
            assert v is None or v.shape == leaf.shape


# ---- Strides -------------------------------------------------------------------------------------


@whole_context("strides as torch's")
def strides(f, cell):
    args = cell.laid_out(leaves_of(cell))
    stock, y = torchs_own(cell, args), f(*args)
    if y.stride() != stock.stride():
        raise Wrong(f"strides of the result: {y.stride()} instead of {stock.stride()}")


@whole_context("strides of gradients")
def strides_of_gradients(f, cell):
    """A gradient is laid out like the result, whatever g is: channels_last stays channels_last."""

    def steps(t):  # nobody steps over a dimension of size 1
        return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]

    def lies_as(y, t):  # 0 where it is broadcast
        pairs = sorted(zip(steps(y), steps(t.expand(y.shape))))
        inner_first = [stride for _, stride in pairs if stride]
        return inner_first == (sorted(inner_first) if t.shape != y.shape else sorted(steps(y)))

    args = cell.laid_out(leaves_of(cell))
    y = f(*args)
    alike = [a for a in args if a.requires_grad and a.shape == y.shape]
    if expected(cell).g is None or not alike or not y.numel():
        return
    # Where the arguments lie in several orders, the gradients may have any of them.
    if not all(lies_as(y, a) for a in args):
        return
    gs = {"alike": torch.ones_like(y), "contiguous": y.new_ones(y.shape)}
    gs["expanded"] = y.new_ones(()).expand(y.shape)
    for how, g in gs.items():
        if how != "alike" and cell.gradient == "straight_through":  # which may return g itself
            continue
        for v in grad(y, alike, g, retain_graph=True):
            if v is not None and steps(v) != steps(y):
                raise Wrong(f"strides of a gradient: {v.stride()} instead of {y.stride()}, g {how}")


# ---- Threads -------------------------------------------------------------------------------------


@whole_context("threads")
def threads(f, cell):
    """The forward in several threads at once, each with its backward."""

    device = torch.get_default_device()  # of this thread

    def work():
        with device:
            for _ in range(3):
                CONTEXTS["plain"].run(f, cell)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result()


@reverse_context("backward in another thread")
def other_thread(f, leaves, args, g):
    y = f(*args)
    with ThreadPoolExecutor(1) as pool:
        return y, pool.submit(grad, y, leaves, g).result()


# ---- Copies --------------------------------------------------------------------------------------


@whole_context(
    "deepcopy and pickle", accepts=lambda cell: "module" in cell.form or "nn." in cell.form
)
def copies(f, cell):
    original = getattr(f, "module", None)
    if original is None:
        return
    try:
        for copied in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            f.module = copied
            CONTEXTS["plain"].run(f, cell)
    finally:
        f.module = original
