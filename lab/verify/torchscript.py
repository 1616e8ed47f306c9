"""The gradients that TorchScript's graph executor has of its own, in symbolic_script.cpp.

No wheel has that file. But its functions are TorchScript, which the installed torch compiles. Each
returns its result and a nested `backward`, which the executor lifts out of it; so is done here.
"""

import re
from collections import defaultdict
from textwrap import dedent, indent

import torch
from torch.testing._internal.jit_utils import disable_autodiff_subgraph_inlining

from ..series import SCRIPT, Refusal
from .gradients import calls, exact, leaves, noted, rows
from .upstream_files import SCRIPTED

NAMES = {"numbers": {"clamp": "clamp_1"}}
NAMES["tensors"] = {"clamp": "clamp_2", "maximum": "max", "minimum": "min"}
# symbolic_script.cpp has it among its functions; there `torch.` alone reaches every operator.
HELPER = """def AD_sizes_if_not_equal_multi_0(t1, t2, result):
    first = torch.ops.aten._size_if_not_equal(t1.size(), result.size())
    return first, torch.ops.aten._size_if_not_equal(t2.size(), result.size())
"""
BACKWARD = re.compile(r"(?ms)(def .*?)\):\n(.*?)^( +)def backward\(grad_output\):\n(.*?)(?=^\3\S)")


def lifted(function):
    """The statements before `backward` and those in it, as a function of
    the arguments and grad_output."""
    if not (found := BACKWARD.match(function)):
        raise Refusal(f"There is no backward(grad_output) in:\n{function}")
    signature, before, margin, block = found.groups()
    return f"{signature}, grad_output):\n{before}{indent(dedent(block), margin)}"


def compiled(text):
    """The backward of every function; refuses with TorchScript's own error."""
    texts = [dedent(found[0]) for found in SCRIPTED.finditer(text)]
    try:
        torch.jit.CompilationUnit("\n".join([HELPER, *texts]))
        return torch.jit.CompilationUnit("\n".join([HELPER, *map(lifted, texts)]))
    except RuntimeError as error:
        raise Refusal(f"TorchScript does not take the functions of {SCRIPT}:\n{error}") from None


def points():
    """Every point of the table: its key, the function, the places of its arguments,
    variables, all arguments, g."""
    for operator, kind, _, variables, args, g in calls():
        places = (0, 2) if operator == "clamp_max" else range(len(args))
        if name := NAMES[kind].get(operator.partition("_")[0]):
            yield f"{operator}, {kind}, TorchScript", name, places, variables, args, g


def filled(name, places, values, absent=None):
    given = dict(zip(places, values))
    return [given.get(i, absent) for i in range(3 if name.startswith("clamp") else 2)]


def gradients(text):
    """At every point of the table, as gradients.gradients has them. Where Tensors are broadcast,
    all but one have a second row, with another gradient, and that of the one is the sum."""
    unit, found, errors = compiled(text), defaultdict(list), {}
    for key, name, places, variables, args, g in points():
        numbers = [a[0].item() for a in args[len(variables) :]]

        def backward(variables, g):
            values = getattr(unit, name)(*filled(name, places, [*variables, *numbers]), g)
            given = zip(variables, (values[i] for i in places))
            return [torch.zeros_like(a) if v is None else v for a, v in given]

        other = torch.full_like(g, 2)
        first, second = backward(variables, g), backward(variables, other)
        found[key].append(rows(args, g, first))
        for i in range(len(args) if not numbers else 0):
            given = [a if i == j else torch.stack([a, a]) for j, a in enumerate(args)]
            both = [torch.stack(pair) for pair in zip(first, second)]
            both[i] = both[i].sum(0)
            with noted(errors, of_rows := f"{key} with a broadcast argument"):
                exact(backward(given, torch.stack([g, other])), both)
                found[of_rows].append(rows(args, g, first))
    return {k: torch.cat(parts) for k, parts in found.items() if k not in errors}, errors


@disable_autodiff_subgraph_inlining()
def executed():
    """What the installed torch's executor gives, at the same points."""
    found = defaultdict(list)
    for key, name, places, variables, args, g in points():
        names = [f"a{i}" for i in range(len(variables))]
        numbers = [f"float('{a[0].item()}')" for a in args[len(names) :]]
        passed = ", ".join(filled(name, places, names + numbers, "None"))
        call = f"torch.{name.split('_')[0]}({passed})"
        unit = torch.jit.CompilationUnit(f"def f({', '.join(names)}):\n    return {call} * 2\n")
        inputs = leaves(variables)
        for _ in range(3):  # the first calls are profiled
            y = unit.f(*inputs)
        if "prim::DifferentiableGraph" not in str(torch.jit.last_executed_optimized_graph()):
            raise Refusal("The graph executor did not differentiate the graph itself.")
        values = torch.autograd.grad(y, inputs, g / 2, materialize_grads=True)
        found[key].append(rows(args, g, values))
    return {key: torch.cat(parts) for key, parts in found.items()}
