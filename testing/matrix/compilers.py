"""Contexts that trace the call: make_fx, functionalize, what torch.compile
stands on, and TorchScript."""

from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.autograd.forward_ad as fwad
from torch._dynamo import compiled_autograd
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

import clampgrad
from testing.matrix.cells import expected
from testing.matrix.contexts import (
    Wrong,
    can_reuse_input,
    check_result,
    check_same,
    check_tangent,
    grad,
    has_gradient,
    leaves_of,
    leaves_that_require_grad,
    on_its_result,
    reverse_context,
    twice,
    whole_context,
    with_tangents,
)
from testing.matrix.forms import FORMS


def plain_memory(cell):
    return all(a.layout in ("plain", "transposed", "channels_last") for a in cell.tensor_args)


def compilable(cell):
    return plain_memory(cell) and not cell.empty


def functionalizable(cell):
    """torch.func.functionalize has no rule for an autograd function, which a
    portable call is that no pin makes."""
    recorded = clampgrad.implementation == "portable" and not FORMS[cell.form].pin
    return plain_memory(cell) and not recorded


@reverse_context("functionalize", accepts=functionalizable)
def functionalized(f, leaves, args, g):
    """The gradient is taken of a graph without writes in place."""
    y = functionalize(f)(*args)
    return y, grad(y, leaves, g)


def traced(name, mode, costly):
    """The graph of ATen operators gives the same numbers, and nothing of ours is left in it."""

    @whole_context(name, accepts=plain_memory, costly=costly)
    def run(f, cell):
        should = expected(cell)
        leaves = leaves_of(cell)

        def step(*tensors):
            again = [t.detach().requires_grad_(w) for t, w in zip(tensors, cell.requires_grad)]
            y = f(*again)
            return [y.detach()] if should.g is None else [y.detach(), *grad(y, again, tensors[-1])]

        given = [leaf.detach() for leaf in leaves]
        given += [] if should.g is None else [should.g.clone()]
        graph = make_fx(step, tracing_mode=mode)(*given)
        if "clampgrad" in graph.code:
            raise Wrong(graph.code)
        y, *gradients = graph(*given)
        if should.g is not None:
            check_result(cell, leaves, y, gradients)
        check_same("value", y, should.value)


traced("make_fx, forward and backward", "real", costly=False)
traced("make_fx, symbolic", "symbolic", costly=True)


def run_compiled(f, args, **more):
    """A pin goes around what is compiled: Dynamo does not enter one."""
    torch._dynamo.reset()
    step = torch.compile(getattr(f, "bare", f), fullgraph=True, **more)
    with getattr(f, "pin", nullcontext()):
        return step(*args)


@reverse_context("compile, aot_eager", accepts=compilable, costly=True)
def compiled(f, leaves, args, g):
    y = run_compiled(f, args, backend="aot_eager")
    return y, grad(y, leaves, g)


def doubled(t):
    """Twice as long in every dimension that may be."""
    for d in (d for d, size in enumerate(t.shape) if size > 1):
        t = torch.cat((t, t), d)
    return t


@reverse_context("compile, aot_eager, dynamic", accepts=compilable, costly=True)
def compiled_for_every_size(f, leaves, args, g):
    """The graph is made for other sizes."""
    torch._dynamo.reset()
    step = torch.compile(getattr(f, "bare", f), fullgraph=True, backend="aot_eager", dynamic=True)
    with getattr(f, "pin", nullcontext()):
        step(*(doubled(a.detach()).requires_grad_(a.requires_grad) for a in args))
        y = step(*args)
    return y, grad(y, leaves, g)


def is_recorded(cell):
    return compilable(cell) and has_gradient(cell)


@whole_context("compiled, forward mode inside", accepts=is_recorded, costly=True)
def forward_mode_compiled(f, cell):
    """The graph opens the level."""
    bare = getattr(f, "bare", f)

    def tangent_of(*given):
        tensors, tangents = given[: len(cell.requires_grad)], iter(given[len(cell.requires_grad) :])
        with fwad.dual_level():
            args = with_tangents(
                tensors, [next(tangents) if w else None for w in cell.requires_grad]
            )
            return tuple(fwad.unpack_dual(bare(*args)))

    def in_a_graph(*given):
        try:
            with getattr(f, "pin", nullcontext()):
                return run_compiled(tangent_of, given, backend="eager")
        except torch._dynamo.exc.Unsupported as error:  # in which Dynamo puts what it meets
            kind = NotImplementedError if "NotImplementedError" in str(error) else AssertionError
            raise kind(str(error)) from error

    check_tangent(f, cell, in_a_graph)


def in_skipped_frame(f, args):
    """Dynamo leaves the frame around the call uncompiled, and looks at
    those that the call enters."""
    torch._dynamo.reset()
    between = torch._dynamo.disable(lambda *args: f(*args), recursive=False)
    return torch.compile(lambda *args: between(*args), backend="aot_eager")(*args)


@reverse_context("compiled, a frame that Dynamo skips", accepts=compilable, costly=True)
def skipped(f, leaves, args, g):
    with getattr(f, "pin", nullcontext()):
        y = in_skipped_frame(getattr(f, "itself", f), [args[0] * 1, *args[1:]])
        return y, grad(y, leaves, g)


@whole_context(
    "compiled, two calls in place of one x, between graph breaks",
    accepts=lambda cell: can_reuse_input(cell) and compilable(cell),
    costly=True,
)
def two_calls_apart(f, cell):
    def call(f, leaves):
        return in_skipped_frame(lambda *leaves: on_its_result(f, leaves), leaves)

    with getattr(f, "pin", nullcontext()):
        twice(f, cell, call)


@whole_context(
    "compiled, two calls in place of one x",
    accepts=lambda cell: can_reuse_input(cell) and compilable(cell),
    costly=True,
)
def two_calls_compiled(f, cell):
    def call(f, leaves):
        on_one = lambda *leaves: on_its_result(f, leaves)  # noqa: E731
        return run_compiled(on_one, leaves, backend="aot_eager")

    with getattr(f, "pin", nullcontext()):
        twice(f, cell, call)


def numbers_of(cell):
    """Those that a form takes with each call. A module is made with them."""
    return [a for a in cell.args if isinstance(a, (int, float)) and not FORMS[cell.form].module]


def other_numbers(cell):
    args = tuple(a + 1 if isinstance(a, (int, float)) else a for a in cell.args)
    return replace(cell, args=args) if numbers_of(cell) else cell


def check_together(cells):
    """Many calls in one graph, whose C++ is compiled at once, and
    which gets other numbers first."""
    functions = [FORMS[cell.form].make(cell) for cell in cells]
    bare = [getattr(f, "bare", f) for f in functions]
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=True)
    def step(tensors, numbers):
        return [f(*given, *more) for f, given, more in zip(bare, tensors, numbers)]

    with next((f.pin for f in functions if hasattr(f, "pin")), nullcontext()):
        for now in ([*map(other_numbers, cells)], cells):
            leaves = [leaves_of(cell) for cell in now]
            args = [cell.laid_out(of_cell) for cell, of_cell in zip(now, leaves)]
            tree_map(torch._dynamo.mark_static, args)
            results = step(args, [*map(numbers_of, now)])
            gs = [expected(cell).g for cell in now]
            recorded = [i for i, g in enumerate(gs) if g is not None]
            inputs = sum((leaves[i] for i in recorded), [])
            ys = [results[i] for i in recorded]
            gradients = iter(grad(ys, inputs, [gs[i].clone() for i in recorded]) if ys else ())
            for cell, of_cell, y, g in zip(now, leaves, results, gs):
                differentiated = [] if g is None else leaves_that_require_grad(of_cell)
                check_result(cell, of_cell, y, [next(gradients) for _ in differentiated])


@whole_context("compile, Inductor", accepts=compilable, costly=True)
def by_inductor(f, cell):
    check_together([cell])


if hasattr(compiled_autograd, "_enable"):  # torch 2.6 or later

    @reverse_context("compiled autograd", accepts=plain_memory, costly=True)
    def compiled_backward(f, leaves, args, g):
        torch._dynamo.reset()
        y = f(*args)
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            return y, grad(y, leaves, g)


@reverse_context("checkpoint, compiled", accepts=compilable, costly=True)
def compiled_checkpoint(f, leaves, args, g):
    bare = getattr(f, "bare", f)

    def inner(*tensors):
        return torch.utils.checkpoint.checkpoint(bare, *tensors, use_reentrant=False)

    inner.bare, inner.pin = inner, getattr(f, "pin", nullcontext())
    y = run_compiled(inner, args, backend="aot_eager")
    return y, grad(y, leaves, g)


# ---- A graph that was captured, under the pin of the process or before it ------------------------


def of_a_process(cell):
    return FORMS[cell.form].process and compilable(cell)


def torchscript(f, args):
    given = tuple(a.detach().requires_grad_(a.requires_grad) for a in args)
    # TorchScript differentiates some graphs with several operators itself.
    return torch.jit.trace(lambda *a: (f(*a) * 1.0) * 1.0 * 1.0, given, check_trace=False)


def last_of_three(graph, leaves, args, g):
    """TorchScript optimizes what it has run before."""
    for _ in range(2):
        y = graph(*args)
        grad(y, leaves, g, retain_graph=True)
    y = graph(*args)
    return y, grad(y, leaves, g)


@reverse_context("TorchScript, traced", accepts=of_a_process)
def traced_under_the_pin(f, leaves, args, g):
    return last_of_three(torchscript(f, args), leaves, args, g)


@reverse_context("TorchScript, traced before the pin", accepts=of_a_process)
def traced_before_the_pin(f, leaves, args, g):
    with clampgrad.pin(None):
        graph = torchscript(f, args)
    return last_of_three(graph, leaves, args, g)


@reverse_context("make_fx, captured before the pin", accepts=of_a_process)
def captured_before_the_pin(f, leaves, args, g):
    with clampgrad.pin(None), torch.no_grad():
        graph = make_fx(f)(*[a.detach() for a in args])
    y = graph(*args)
    return y, grad(y, leaves, g)
