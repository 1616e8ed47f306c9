"""Contexts that trace the call: make_fx, functionalize, and what torch.compile stands on."""

from contextlib import nullcontext

import torch
from torch._dynamo import compiled_autograd
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from matrix.cells import expected
from matrix.contexts import Wrong, compare, grad, leaves_of, reverse, same, whole


def plain_memory(cell):
    return all(a.layout in ("plain", "transposed", "channels_last") for a in cell.tensor_args)


def compilable(cell):
    return plain_memory(cell) and not cell.empty


@reverse("functionalize", accepts=plain_memory)
def functionalized(f, leaves, args, g):
    """The gradient is taken of a graph without writes in place."""
    y = functionalize(f)(*args)
    return y, grad(y, leaves, g)


def traced(name, mode, costly):
    """The graph of ATen operators gives the same numbers, and nothing of ours is left in it."""

    @whole(name, accepts=plain_memory, costly=costly)
    def run(f, cell):
        should = expected(cell)
        leaves = leaves_of(cell)

        def step(*tensors):
            again = [t.detach().requires_grad_(w) for t, w in zip(tensors, cell.want)]
            y = f(*again)
            return [y.detach()] if should.g is None else [y.detach(), *grad(y, again, tensors[-1])]

        given = [leaf.detach() for leaf in leaves]
        given += [] if should.g is None else [should.g.clone()]
        graph = make_fx(step, tracing_mode=mode)(*given)
        if "clampgrad" in graph.code:
            raise Wrong(graph.code)
        y, *found = graph(*given)
        if should.g is not None:
            compare(cell, leaves, y, found)
        same("value", y, should.value)


traced("make_fx, forward and backward", "real", costly=False)
traced("make_fx, symbolic", "symbolic", costly=True)


def run_compiled(f, args, **more):
    """A pin goes around what is compiled: Dynamo does not enter one."""
    torch._dynamo.reset()
    step = torch.compile(getattr(f, "bare", f), fullgraph=True, **more)
    with getattr(f, "pin", nullcontext()):
        return step(*args)


def compiled(name, backend, **more):
    @reverse(name, accepts=compilable, costly=True)
    def run(f, leaves, args, g):
        y = run_compiled(f, args, backend=backend, **more)
        return y, grad(y, leaves, g)


compiled("compile, aot_eager", "aot_eager")
compiled("compile, aot_eager, dynamic", "aot_eager", dynamic=True)
compiled("compile, Inductor", "inductor")


@reverse("compiled autograd", accepts=plain_memory, costly=True)
def compiled_backward(f, leaves, args, g):
    torch._dynamo.reset()
    y = f(*args)
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        return y, grad(y, leaves, g)


@reverse("checkpoint, compiled", accepts=compilable, costly=True)
def compiled_checkpoint(f, leaves, args, g):
    bare = getattr(f, "bare", f)

    def inner(*tensors):
        return torch.utils.checkpoint.checkpoint(bare, *tensors, use_reentrant=False)

    inner.bare, inner.pin = inner, getattr(f, "pin", nullcontext())
    y = run_compiled(inner, args, backend="aot_eager")
    return y, grad(y, leaves, g)
