"""Run by `verify` in a process of its own: python checks.py TASK, a JSON on stdin and one on stdout.

TASK is `gradients` (of every point of the table, in every mode) or `opinfo`. With a `library` it is
loaded first and the nodes that ran are named.
"""

import json
import sys
from itertools import product
from pathlib import Path

import torch
import torch.autograd.forward_ad as fwad

# The table of conventions and its reader, as in ../series.py.
FILES = Path(__file__).parents[1] / "files"
sys.path.insert(0, str((FILES if FILES.is_dir() else Path(__file__).parents[4]) / "test"))
OPERATORS = ("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin")
INCOMING = (1.0, -3.0, torch.inf, torch.nan)


def reverse(f, args, g):
    args = [a.clone().requires_grad_() for a in args]
    return torch.autograd.grad(f(*args), args, g, allow_unused=True)


def in_place(f, args, g):
    return reverse(lambda x, *rest: f.in_place(x.clone(), *rest), args, g)


def twice(f, args, g):
    """Double backward: with respect to g the gradient is linear, so v gives the tangent of v."""
    args = [a.clone().requires_grad_() for a in args]
    g0 = torch.ones_like(g).requires_grad_()
    found = []
    for a in args:
        (first,) = torch.autograd.grad(f(*args), a, g0, create_graph=True)
        found += torch.autograd.grad(first, g0, g)
    return found


def vjp(f, args, g):
    return torch.func.vjp(f, *args)[1](g)


def vmapped(f, args, g):
    return torch.func.vmap(lambda g, *a: torch.func.vjp(f, *a)[1](g))(g, *args)


def compiled(f, args, g):
    torch._dynamo.reset()
    return reverse(torch.compile(f, backend="aot_eager", dynamic=False), args, g)


def forward(f, args, g):
    found = []
    for i in range(len(args)):
        with fwad.dual_level():
            duals = [
                fwad.make_dual(a, g if i == j else torch.zeros_like(a)) for j, a in enumerate(args)
            ]
            found.append(fwad.unpack_dual(f(*duals)).tangent)
    return found


def jvp(f, args, g):
    zero = torch.zeros_like(g)
    return [
        torch.func.jvp(f, tuple(args), tuple(g if i == j else zero for j in range(len(args))))[1]
        for i in range(len(args))
    ]


REVERSE = {
    "eager": reverse,
    "in place": in_place,
    "double backward": twice,
    "vjp": vjp,
    "vmap": vmapped,
    "compile": compiled,
}
FORWARD = {"forward": forward, "jvp": jvp}


def cases(operator, kind):
    """Functions with the points they are called at: all points at once, or one call for a pair of numbers."""
    from oracle import TABLE

    points = [p for row in TABLE["operators"][operator]["rows"] for p in row["points"]]
    function = getattr(torch, operator)
    changing = getattr(torch.Tensor, operator + "_", None)
    for bounds in sorted({str(p[1:]) for p in points}) if kind == "numbers" else [None]:
        chosen = [p for p in points if bounds in (None, str(p[1:]))]
        rows = [(*p, g) for p, g in product(chosen, INCOMING)]
        *args, g = torch.tensor(rows, dtype=torch.float64).unbind(1)
        if kind == "tensors":

            def f(*args):
                return function(*args)

            f.in_place = changing
            yield f, args, args, g
        else:
            numbers = chosen[0][1:]

            def f(x, *, numbers=numbers):  # type: ignore[misc]
                return function(x, *numbers)

            f.in_place = changing and (lambda x, numbers=numbers: changing(x, *numbers))
            yield f, args[:1], args, g


def gradients():
    """{operator, kind, mode}: [for each point: args, g, gradients]."""
    from oracle import TABLE

    found = {}
    for operator in OPERATORS:
        scalar = "numbers" in TABLE["operators"][operator]["rows"][0]
        for kind in ["numbers"] * scalar + ["tensors"]:
            for mode, differentiate in (REVERSE | FORWARD).items():
                if kind == "numbers" and mode == "compile" and operator != "clamp":
                    continue
                rows = []
                for i, (f, variables, args, g) in enumerate(cases(operator, kind)):
                    if mode == "in place" and not f.in_place:
                        continue
                    if mode == "compile" and i > 2:
                        continue
                    values = differentiate(f, variables, g)
                    values = [torch.zeros_like(g) if v is None else v for v in values]
                    stacked = torch.stack([*args, g, *values], 1)
                    rows += stacked.tolist()
                found[f"{operator}, {kind}, {mode}"] = rows
    return found


def nodes():
    """The grad_fn of each operator, by name."""
    x = torch.ones(2, requires_grad=True)
    calls = {op: getattr(torch, op) for op in OPERATORS}
    two = {op: calls[op](x, x) for op in OPERATORS if op != "clamp"}
    two["clamp"] = torch.clamp(x, 0, 1)
    return {op: y.grad_fn.name() for op, y in two.items()}


def opinfo():
    """gradcheck, with forward mode and batched gradients, and gradgradcheck, on OpInfo's samples."""
    from torch.autograd import gradcheck, gradgradcheck
    from torch.testing._internal.common_methods_invocations import op_db

    names = {"clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin"}
    names |= {"max_binary", "min_binary", "max", "min", "clip"}
    checked, failures = 0, []
    for op in op_db:
        if op.name not in names or (op.name in ("max", "min") and op.variant_test_name != "binary"):
            continue
        for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
            tensors = [sample.input, *sample.args]
            args = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
            if not all(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors):
                args = [sample.input]
                function = lambda x, s=sample: op(x, *s.args, **s.kwargs)  # noqa: E731
            else:
                function = lambda *a, s=sample: op(*a, **s.kwargs)  # noqa: E731
            try:
                gradcheck(function, args, check_forward_ad=True, check_batched_grad=True)
                gradgradcheck(function, args)
                checked += 1
            except Exception as error:
                failures.append(f"OpInfo {op.name}: {str(error).splitlines()[0]}")
    return {"checked": checked, "failures": failures}


def main():
    question = json.load(sys.stdin)
    torch.set_num_threads(1)
    if question.get("library"):
        torch.ops.load_library(question["library"])
    result = opinfo() if sys.argv[1] == "opinfo" else {"gradients": gradients()}
    json.dump(result | {"nodes": nodes()}, sys.stdout)


if __name__ == "__main__":
    main()
