"""The gradients of clamp and its family at every point of the table: an operator in every context, and each form of it in
reverse and in forward mode. Asked by `verify` in a process of its own (process.py).
"""

from collections import defaultdict
from functools import partial
from itertools import product

import torch
import torch.autograd.forward_ad as fwad
from torch.autograd.profiler import profile
from torch.testing import assert_close

from oracle import TABLE

OPERATORS = ("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin")
INCOMING = (1.0, -3.0, torch.inf, torch.nan)
exact = partial(assert_close, rtol=0, atol=0, equal_nan=True)


# ---- Contexts: way(f, args, g) -> a gradient per argument -----------------------------------------


def reverse(f, args, g):
    args = [a.clone().requires_grad_() for a in args]
    return torch.autograd.grad(f(*args), args, g, materialize_grads=True)


def repeated(f, args, g, dtype=torch.float64):
    """Every point in the vectors of a kernel. (Elsewhere g is strided, so that a kernel takes one at a time.) Values of
    the table are exact in every dtype, and so are their quarters."""
    found = reverse(f, [a.to(dtype).repeat(17) for a in args], g.to(dtype).repeat(17))
    for v in found:
        exact(v, v[: len(g)].repeat(17))
    return [v[: len(g)] for v in found]


def promoted(f, args, g):
    """The input in float32 and the bounds in float64: compared, and differentiated, in float64."""
    return reverse(f, [args[0].float(), *args[1:]], g)


def broadcast(f, args, g):
    """The input in two rows of which the second gets no gradient; the bounds sum over the rows."""
    rows = torch.stack([args[0], args[0]])
    first, *others = reverse(f, [rows, *args[1:]], torch.stack([g, torch.zeros_like(g)]))
    exact(first[1], torch.zeros_like(g))
    return [first[0], *others]


def without_dimensions(f, args, g):
    """Every bound as a Tensor of no dimension, one call per point."""
    calls = zip(*(a.split(1) for a in (*args, g)))
    found = [reverse(f, [x, *(b[0] for b in rest)], one) for x, *rest, one in calls]
    return [torch.cat([v.reshape(1) for v in of_one]) for of_one in zip(*found)]


def over_reverse(f, args, g):
    """The gradient is linear in g, so the tangent of the gradient along g is the gradient of g."""
    function = torch.func.vjp(f, *args)[1]
    return torch.func.jvp(function, (torch.ones_like(g),), (g,))[1]


def dual_backward(f, args, g):
    """The same through the engine, with a gradient that is dual and no graph of backward."""
    with fwad.dual_level():
        found = reverse(f, args, fwad.make_dual(torch.ones_like(g), g))
        return [fwad.unpack_dual(v).tangent for v in found]


def twice(f, args, g):
    """Double backward: with respect to g the gradient is linear, so v gives the tangent of v."""
    args = [a.clone().requires_grad_() for a in args]
    g0 = torch.ones_like(g).requires_grad_()
    found = torch.autograd.grad(f(*args), args, g0, create_graph=True)
    return [torch.autograd.grad(first, g0, g, retain_graph=True)[0] for first in found]


def vjp(f, args, g):
    return torch.func.vjp(f, *args)[1](g)


def vmapped(f, args, g):
    return torch.func.vmap(lambda g, *a: vjp(f, a, g))(g, *args)


def vmapped_alone(f, args, g):
    """Over one argument at a time, the others being the same for all of the batch: the diagonal has our points."""
    found = []
    for i in range(len(args)):
        alone = lambda a, g, i=i: vjp(f, [*args[:i], a, *args[i + 1 :]], g)  # noqa: E731
        values = torch.func.vmap(alone)(args[i], torch.diag(g))
        found.append([v if v.dim() == 1 else v.diagonal() for v in values])
        for value, first in zip(found[-1], found[0]):
            exact(value, first)
    return found[0]


def along_each(args, g):
    """Tangents of all arguments, of which one is g."""
    return [
        tuple(g if i == j else 0 * torch.ones_like(g) for j in range(len(args)))
        for i in range(len(args))
    ]


def forward(f, args, g):
    found = []
    for tangents in along_each(args, g):
        with fwad.dual_level():
            found.append(fwad.unpack_dual(f(*map(fwad.make_dual, args, tangents))).tangent)
    return found


def jvp(f, args, g):
    return [torch.func.jvp(f, tuple(args), tangents)[1] for tangents in along_each(args, g)]


def jvp_of_several_dtypes(f, args, g):
    """Forward mode at one point at a time, where one argument is a vector in float32 and the others are scalars
    in float64: the result is in float32, and its tangents have its dtype and shape, whichever the vector is."""

    def tangents(vector, point, one):
        given = [a.float()[None] if i == vector else a for i, a in enumerate(point)]
        for i, moved in enumerate(given):
            alone = lambda value, i=i: f(*given[:i], value, *given[i + 1 :])  # noqa: E731
            along = one.to(moved.dtype).expand_as(moved)
            result, tangent = torch.func.jvp(alone, (moved,), (along,))
            if (result.dtype, result.shape) != (tangent.dtype, tangent.shape):
                raise AssertionError(f"a tangent {tangent} of a result {result}")
            yield tangent.double()

    first, *others = [
        torch.stack([torch.cat([*tangents(v, point, one)]) for *point, one in zip(*args, g)])
        for v in range(len(args))
    ]
    for other in others:
        exact(other, first)
    return first.unbind(1)


CONTEXTS = {
    "eager": reverse,
    "in vectors": repeated,
    "float32": partial(repeated, dtype=torch.float32),
    "bfloat16": partial(repeated, dtype=torch.bfloat16),
    "float16": partial(repeated, dtype=torch.float16),
    "broadcast": broadcast,
    "double backward": twice,
    "forward over reverse": over_reverse,
    "dual numbers in backward": dual_backward,
    "vjp": vjp,
    "vmap": vmapped,
    "forward mode": forward,
    "forward mode by jvp": jvp,
}
OF_TENSORS = {
    "promoted": promoted,
    "bounds of no dimension": without_dimensions,
    "vmap over one": vmapped_alone,
    "forward mode of several dtypes": jvp_of_several_dtypes,
}


# ---- Forms: form(operator) -> a function of the arguments, or None where there is none --------------


def in_place(operator):
    changing = getattr(torch.Tensor, operator + "_", None)
    return changing and (lambda x, *bounds: changing(x.clone(), *bounds))


def foreach(operator, suffix="", numbers=False):
    """A third of our points in each place of a list of three Tensors, the others being unlike. The bounds are a list
    too, or one number for all."""
    function = getattr(torch, f"_foreach_{operator}{suffix}", None)

    def called(x, b):
        listed = numbers or isinstance(b, torch.Tensor)
        lots = enumerate(b.chunk(3) if isinstance(b, torch.Tensor) else [b] * 3)
        found = []
        for (place, bound), part in zip(lots, x.chunk(3)):
            tensors = [torch.full((n,), 2.5, dtype=x.dtype) for n in (2, 3, 4)]
            bounds = [2.5, 2.5, 2.5] if numbers else [t.clone() for t in tensors]
            tensors[place], bounds[place] = part.clone(), bound
            found.append((function(tensors, bounds if listed else b) or tensors)[place])
        return torch.cat(found)

    return function and called


def one_bound(operator):
    """The clamp with one bound, which has a formula of its own."""
    if operator not in ("clamp_min", "clamp_max"):
        return None
    return lambda x, b: torch.clamp(x, **{operator.removeprefix("clamp_"): b})


FORMS = {
    "": partial(getattr, torch),
    "in place": in_place,
    "foreach": foreach,
    "foreach in place": partial(foreach, suffix="_"),
    "foreach of numbers": partial(foreach, numbers=True),
    "foreach of numbers in place": partial(foreach, suffix="_", numbers=True),
    "one bound of clamp": one_bound,
}


def called_with(f, numbers, x):
    return f(x, *numbers)


def points(operator, kind):
    """(args, g): all points of the table at once, or, of numbers, those of one pair of bounds."""
    lots = defaultdict(list)
    every = (p for row in TABLE["operators"][operator]["rows"] for p in row["points"])
    for p, g in product(every, INCOMING):
        lots[str(p[1:]) if kind == "numbers" else ""].append((*p, g))
    for lot in lots.values():
        *args, g = torch.tensor(lot, dtype=torch.float64).unbind(1)
        yield args, g


def calls():
    """(operator, kind, forms, variables, args, g): functions of the variables, with points to call them at."""
    for operator, kind in product(OPERATORS, ("numbers", "tensors")):
        forms = {name: form(operator) for name, form in FORMS.items()}
        if kind == "tensors":
            forms = {n: f for n, f in forms.items() if "numbers" not in n}
        elif not operator.startswith("clamp"):  # of numbers there are lists alone
            forms = {n: f for n, f in forms.items() if "foreach" in n}
        forms = {n: f for n, f in forms.items() if f}
        for args, g in points(operator, kind) if forms else ():
            if kind == "tensors":
                yield operator, kind, forms, args, args, g
                continue
            numbers = [a[0].item() for a in args[1:]]
            # Up to 2.12 clamp with one bound ignores a NaN there.
            mine = {
                n: f
                for n, f in forms.items()
                if "one bound" not in n or all(v == v for v in numbers)
            }
            of_x = {n: partial(called_with, f, numbers) for n, f in mine.items()}
            yield operator, kind, of_x, args[:1], args, g


def rows(args, g, values):
    """A row for each point: its arguments, g, and the gradients."""
    values = [torch.zeros_like(g) if v is None else v.double() for v in values]
    return torch.stack([*args, g, *values], 1)


def beside(operator, bounds, dtype):
    """Next to numbers that no 16 bits hold. (Upstream compares some in float32 and some as forward rounds them, so it
    has two answers at the number as it is rounded.)"""
    rounded = torch.tensor(bounds, dtype=dtype)
    x = torch.cat([torch.nextafter(rounded, torch.full_like(rounded, e)) for e in (-9, 9)])
    g = torch.ones_like(x)
    found = reverse(lambda x: getattr(torch, operator)(x, *bounds), [x], g)
    args = [x.double(), *(torch.full_like(x, b, dtype=torch.double) for b in bounds)]
    return rows(args, g.double(), found)


def gradients():
    """{operator, kind, mode: rows}, and what raises, with its message."""
    found, errors = defaultdict(list), {}

    def ask(key, make):
        try:
            found[key].append(make())
        except Exception as error:
            errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]

    for operator, kind, forms, variables, args, g in calls():
        ways = {}
        for form, f in forms.items():
            if form:
                ways |= {form: (f, reverse), f"forward mode of {form}": (f, forward)}
            else:
                contexts = CONTEXTS | (OF_TENSORS if kind == "tensors" else {})
                ways |= {mode: (f, way) for mode, way in contexts.items()}
        for mode, (f, way) in ways.items():
            ask(f"{operator}, {kind}, {mode}", lambda: rows(args, g, way(f, variables, g)))
    bounds = {"clamp": (0.1, 0.7), "clamp_min": (0.1,), "clamp_max": (0.7,)}
    for operator, dtype in product(bounds, ("bfloat16", "float16")):
        make = partial(beside, operator, bounds[operator], getattr(torch, dtype))
        ask(f"{operator}, numbers, {dtype} beside", make)
    return {k: torch.cat(v) for k, v in found.items() if k not in errors}, errors


def compiled(backend):
    """The gradients of all operators, compiled as one function, forward and backward."""
    of_forms = [(f"{o}, {k}", forms[""], *rest) for o, k, forms, *rest in calls() if "" in forms]
    names, functions, variables, args, gs = zip(*of_forms)
    leaves = [[v.clone().requires_grad_() for v in of_one] for of_one in variables]

    def everything(leaves):
        return [f(*of_one) for f, of_one in zip(functions, leaves)]

    results = torch.compile(everything, backend=backend, fullgraph=True, dynamic=False)(leaves)
    flat = [v for of_one in leaves for v in of_one]
    values = iter(torch.autograd.grad(results, flat, gs, materialize_grads=True))
    found = defaultdict(list)
    for name, a, g, of_one in zip(names, args, gs, leaves):
        found[f"{name}, {backend}"].append(rows(a, g, [next(values) for _ in of_one]))
    return {key: torch.cat(parts) for key, parts in found.items()}


def what_ran(errors):
    """For each form that does not raise the grad_fn, and all operators that backward calls."""
    nodes, called = {}, set()
    for operator, kind, forms, variables, _, g in calls():
        for form, f in forms.items():
            key = f"{operator}, {kind}, {form}"
            if key in nodes or key in errors:
                continue
            leaves = [v.clone().requires_grad_() for v in variables]
            y = f(*leaves)
            node = y.grad_fn.next_functions[0][0] if "foreach" in form else y.grad_fn  # of a cat
            nodes[key] = node.name()
            with profile() as seen:  # a dispatch mode would keep formulas from their kernels
                torch.autograd.grad(y, leaves, g)
            called |= {e.name.removeprefix("aten::") for e in seen.function_events}
    return nodes, sorted(called)
