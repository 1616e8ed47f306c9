"""Contexts that run a graph which was captured, under the pin of the process or before it."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import clampgrad
from matrix.compilers import compilable
from matrix.contexts import grad, reverse
from matrix.forms import FORMS


def of_a_process(cell):
    return FORMS[cell.form].process and compilable(cell)


def traced(f, args):
    given = tuple(a.detach().requires_grad_(a.requires_grad) for a in args)
    # Of graphs with several operators, TorchScript differentiates some itself.
    return torch.jit.trace(lambda *a: (f(*a) * 1.0) * 1.0 * 1.0, given, check_trace=False)


def last_of_three(graph, leaves, args, g):
    """TorchScript optimizes what it has run before."""
    for _ in range(2):
        y = graph(*args)
        grad(y, leaves, g, retain_graph=True)
    y = graph(*args)
    return y, grad(y, leaves, g)


@reverse("TorchScript, traced", accepts=of_a_process)
def traced_under_the_pin(f, leaves, args, g):
    return last_of_three(traced(f, args), leaves, args, g)


@reverse("TorchScript, traced before the pin", accepts=of_a_process)
def traced_before_the_pin(f, leaves, args, g):
    with clampgrad.pin(None):
        graph = traced(f, args)
    return last_of_three(graph, leaves, args, g)


@reverse("make_fx, captured before the pin", accepts=of_a_process)
def captured_before_the_pin(f, leaves, args, g):
    with clampgrad.pin(None), torch.no_grad():
        graph = make_fx(f)(*[a.detach() for a in args])
    y = graph(*args)
    return y, grad(y, leaves, g)
