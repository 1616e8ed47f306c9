"""The gradients that TorchScript's graph executor has of its own, in symbolic_script.cpp.

No wheel has that file. But its functions are TorchScript, which the installed torch compiles. Each
returns its result and a nested `backward`, which the executor lifts out of it; so is done here.
"""

import re
from collections import defaultdict
from textwrap import dedent, indent

import torch

from ..series import SCRIPT, Refusal
from .gradients import calls, rows
from .upstream_files import SCRIPTED

# For each operator and kind of bounds, the function, and which of its arguments there are.
ARGUMENTS = {
    ("clamp", "numbers"): ("clamp_1", (True, True, True)),
    ("clamp_min", "numbers"): ("clamp_1", (True, True, False)),
    ("clamp_max", "numbers"): ("clamp_1", (True, False, True)),
    ("clamp", "tensors"): ("clamp_2", (True, True, True)),
    ("clamp_min", "tensors"): ("clamp_2", (True, True, False)),
    ("clamp_max", "tensors"): ("clamp_2", (True, False, True)),
    ("maximum", "tensors"): ("max", (True, True)),
    ("minimum", "tensors"): ("min", (True, True)),
}
# symbolic_script.cpp has it among its functions; there `torch.` alone reaches every operator.
HELPER = """def AD_sizes_if_not_equal_multi_0(t1, t2, result):
    first = torch.ops.aten._size_if_not_equal(t1.size(), result.size())
    return first, torch.ops.aten._size_if_not_equal(t2.size(), result.size())
"""


def lifted(function):
    """The statements before `backward` and those in it, as a function of the arguments and grad_output."""
    found = re.match(
        r"(def .*?)\):\n(.*?)^( +)def backward\(grad_output\):\n(.*?)(?=^\3\S)",
        function,
        re.M | re.S,
    )
    if not found:
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
    """Every point of the table: its key, the function, which arguments there are, variables, all arguments, g."""
    for operator, kind, _, variables, args, g in calls():
        if (operator, kind) in ARGUMENTS:
            name, there = ARGUMENTS[operator, kind]
            yield f"{operator}, {kind}, TorchScript", name, there, variables, args, g


def filled(there, values, absent=None):
    given = iter(values)
    return [next(given) if there_is else absent for there_is in there]


def gradients(text):
    """At every point of the table, as gradients.gradients has them."""
    unit, found = compiled(text), defaultdict(list)
    for key, name, there, variables, args, g in points():
        numbers = [a[0].item() for a in args[len(variables) :]]
        values = getattr(unit, name)(*filled(there, [*variables, *numbers]), g)
        values = [v for v, there_is in zip(values, there) if there_is][: len(variables)]
        found[key].append(rows(args, g, values))
    return {key: torch.cat(parts) for key, parts in found.items()}


def not_summed(text):
    """Where a gradient has not the shape of its argument, if one of them is broadcast over rows, or is no sum."""
    unit, failures = compiled(text), set()
    for key, name, there, variables, args, g in points():
        finite = g.nan_to_num(2.0, 2.0, 2.0)
        for stretched in range(len(args) if len(variables) > 1 else 0):
            given = [torch.stack([a, a]) if i != stretched else a for i, a in enumerate(args)]
            found = getattr(unit, name)(*filled(there, given), torch.stack([finite, finite]))
            single = getattr(unit, name)(*filled(there, args), finite)
            for i, argument in zip((i for i, there_is in enumerate(there) if there_is), given):
                sums = (single[i] * (2 if argument.dim() == 1 else 1)).expand_as(argument)
                if found[i].shape != argument.shape or not torch.equal(found[i], sums):
                    failures.add(f"{key}: a broadcast argument")
    return sorted(failures)


def executed():
    """What the installed torch's executor gives, at the same points."""
    found = defaultdict(list)
    profiling = torch._C._jit_set_profiling_executor(False)
    torch._C._debug_set_autodiff_subgraph_inlining(False)
    try:
        for key, name, there, variables, args, g in points():
            names = [f"a{i}" for i in range(len(variables))]
            numbers = [f"float('{a[0].item()}')" for a in args[len(names) :]]
            passed = ", ".join(filled(there, names + numbers, "None"))
            call = f"torch.{name.split('_')[0]}({passed})"
            unit = torch.jit.CompilationUnit(f"def f({', '.join(names)}):\n    return {call} * 2\n")
            leaves = [v.clone().requires_grad_() for v in variables]
            y = unit.f(*leaves)
            if "prim::DifferentiableGraph" not in str(torch.jit.last_executed_optimized_graph()):
                raise Refusal("The graph executor did not differentiate the graph itself.")
            values = torch.autograd.grad(y, leaves, g / 2, materialize_grads=True)
            found[key].append(rows(args, g, values))
    finally:
        torch._C._jit_set_profiling_executor(profiling)
        torch._C._debug_set_autodiff_subgraph_inlining(True)
    return {key: torch.cat(parts) for key, parts in found.items()}
