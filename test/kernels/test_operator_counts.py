"""How many operators the composed path runs, per convention: counts may fall, never grow.

records/operator-counts.jsonl holds the count of each case, the same on every release of
torch. `PYTHONPATH=. python test/kernels/test_operator_counts.py` writes it anew; a
higher count in it needs a reason. A convention that is not in it yet may take as many
operators as the most demanding of the others.
"""

from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import partial

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.fx.experimental.proxy_tensor import make_fx

import clampgrad
import records
from oracle import EXTREMA
from testing.comparing import Dispatched

RECORD = "operator-counts"
MAXIMIZED = [f"{name}, maximize" for name in ("with_grad", "restoring")]
CONVENTIONS = [*clampgrad.CONVENTIONS, *MAXIMIZED]

# name: the function, how many Tensors it takes, which of them are differentiated.
CLAMP_CALLS = {
    "clamp(x, 0, 1)": (partial(clampgrad.clamp, min=0, max=1), 1, "x"),
    "clamp(x, 1, 1)": (partial(clampgrad.clamp, min=1, max=1), 1, "x"),
    "clamp_min(x, 0)": (partial(clampgrad.clamp_min, min=0), 1, "x"),
    "clamp_max(x, 0)": (partial(clampgrad.clamp_max, max=0), 1, "x"),
    "clamp_min(x, y)": (clampgrad.clamp_min, 2, "xy"),
    "clamp_min(x, y) of x": (clampgrad.clamp_min, 2, "x"),
    "clamp_max(x, y)": (clampgrad.clamp_max, 2, "xy"),
    "clamp(x, y, z)": (clampgrad.clamp, 3, "xyz"),
    "clamp(x, y, z) of x": (clampgrad.clamp, 3, "x"),
    "clamp(x, y, z) of x, y": (clampgrad.clamp, 3, "xy"),
    "clamp(x, y, z) of y, z": (clampgrad.clamp, 3, "yz"),
}
EXTREMUM_CALLS = {f"{name}(x, y)": (getattr(clampgrad, name), 2, "xy") for name in EXTREMA}


# From 2.15 on, a trace has an alias for detach().
DETACHES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


@contextmanager
def collect_operators():
    """The operators that run."""
    seen = []
    with Dispatched(lambda f: seen.append(f) if f != torch.ops.aten.detach.default else None):
        yield seen


def reverse(function, inputs, differentiated):
    """Forward and backward on a device without kernels of ours."""
    there = {id(t): t.detach().to("meta").requires_grad_(t.requires_grad) for t in inputs}
    differentiated = [there[id(t)] for t in differentiated]
    with collect_operators() as seen:
        y = function(*there.values())
        g = torch.ones(y.shape, device=y.device)
        torch.autograd.grad(y, differentiated, g, materialize_grads=True)
    return len(seen)


def recorded(function, inputs, differentiated):
    """The backward alone, differentiable again, from the bits that the fused forward recorded."""
    y = function(*inputs)
    g = torch.ones(inputs[0].shape, requires_grad=True)
    with collect_operators() as seen:
        torch.autograd.grad(y, differentiated, g, create_graph=True, materialize_grads=True)
    return len(seen)


def forward_mode(function, inputs, differentiated):
    with fwad.dual_level():
        duals = [
            fwad.make_dual(t.detach(), torch.ones_like(t)) if t.requires_grad else t for t in inputs
        ]
        with collect_operators() as seen:
            fwad.unpack_dual(function(*duals))
    return len(seen)


def traced(function, inputs, differentiated):
    """The graph as a compiler sees it: nothing dead, nothing twice."""

    def both_ways(*inputs):
        kept = [t for t in inputs if t.requires_grad]
        y = function(*inputs)
        return (y, *torch.autograd.grad(y, kept, torch.ones_like(y), materialize_grads=True))

    graph = make_fx(both_ways)(*inputs).graph
    graph.eliminate_dead_code()
    calls = [n for n in graph.nodes if n.op == "call_function"]
    same = {}  # node: the first one that is equal to it
    seen = {}
    for n in calls:
        operands = torch.fx.map_arg((n.args, n.kwargs), lambda a: same.get(a, a))
        same[n] = n.args[0] if n.target in DETACHES else n
        same[n] = same.get(same[n], same[n])
        if same[n] is n:
            same[n] = seen.setdefault((n.target, repr(operands)), n)
    return len(seen)


WAYS = {f.__name__: f for f in (reverse, recorded, forward_mode, traced)}


def cases():
    for convention in CONVENTIONS:
        name, *maximize = convention.split(", ")
        keywords = {"gradient": name} | ({"maximize": True} if maximize else {})
        calls = CLAMP_CALLS | (EXTREMUM_CALLS if name in clampgrad.EXACT else {})
        for call in calls:
            yield convention, call, calls[call], keywords


def count(function, n, of, keywords, values=(0.0, 1.0, 2.0)):
    totals = {}
    for way, number in WAYS.items():
        inputs = [torch.tensor(values) for _ in range(n)]
        differentiated = [t.requires_grad_() for t, name in zip(inputs, "xyz") if name in of]
        try:
            totals[way] = number(partial(function, **keywords), inputs, differentiated)
        except NotImplementedError:  # with_grad and restoring have no tangent
            assert way == "forward_mode"
    return totals


def recorded_counts():
    """{convention: {call: {way: count}}}"""
    counts = defaultdict(dict)
    for row in records.read(RECORD)["rows"]:
        counts[row.pop("convention")][row.pop("call")] = row
    return counts


def most_of(known):
    most = defaultdict(Counter)
    for calls in known.values():
        for call, totals in calls.items():
            most[call] |= Counter(totals)
    return most


@pytest.mark.of_cpus("the record is a CPU's; elsewhere, 0-dim bounds are moved first")
@pytest.mark.parametrize("values", [(0.0, 1.0, 2.0), 1.0], ids=["vector", "scalar"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_no_count_grows(convention, values):
    known = recorded_counts()
    most = most_of(known)
    for name, call, case, keywords in cases():
        if name == convention:
            totals = count(*case, keywords, values)
            if convention in known:  # equal: a count that has fallen is written down
                assert totals == known[convention][call], call
            else:
                grown = {way: total for way, total in totals.items() if total > most[call][way]}
                assert not grown, f"{call}: more than {most[call]}"


if __name__ == "__main__":
    rows = [
        {"convention": convention, "call": call, **count(*case, keywords)}
        for convention, call, case, keywords in cases()
    ]
    records.write(RECORD, rows, what=records.read(RECORD)["what"])
