"""The gradients of clamp and its family at every point of the table: an operator in every context, and each form of it in
reverse and in forward mode.
"""

from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from itertools import product

import torch
import torch.autograd.forward_ad as fwad
from torch.autograd.profiler import profile
from torch.testing import assert_close

from oracle import TABLE

INCOMING = (1.0, -3.0, torch.inf, torch.nan)
exact = partial(assert_close, rtol=0, atol=0, equal_nan=True)


@contextmanager
def noted(errors, key):
    """An error ends the block, and its first line is noted."""
    try:
        yield
    except Exception as error:
        errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]


# ---- Contexts: way(f, args, g) -> a gradient per argument -----------------------------------------


def leaves(tensors):
    return [t.clone().requires_grad_() for t in tensors]


def reverse(f, args, g):
    args = leaves(args)
    return torch.autograd.grad(f(*args), args, g, materialize_grads=True)


def repeated(f, args, g, dtype=torch.float64):
    """Every point in the vectors of a kernel. (Elsewhere g is strided, so that a kernel takes one at a time.) Values of
    the table are exact in every dtype, and so are their quarters."""
    found = reverse(f, [a.to(dtype).repeat(17) for a in args], g.to(dtype).repeat(17))
    for v in found:
        exact(v, v[: len(g)].repeat(17))
    return [v[: len(g)] for v in found]


def broadcast(f, args, g):
    """The input in float32 and in two rows, of which the second gets no gradient. Tensor bounds are promoted, and sum over
    the rows."""
    rows = torch.stack([args[0], args[0]]).float()
    first, *others = reverse(f, [rows, *args[1:]], torch.stack([g, torch.zeros_like(g)]))
    exact(first[1], torch.zeros_like(first[1]))
    return [first[0], *others]


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
    args = leaves(args)
    g0 = torch.ones_like(g).requires_grad_()
    found = torch.autograd.grad(f(*args), args, g0, create_graph=True)
    return [torch.autograd.grad(first, g0, g, retain_graph=True)[0] for first in found]


def vmapped(f, args, g, alone=None):
    """Over all arguments, or over one alone, the others being the same for all of the batch: then the diagonal has our
    points."""
    dims = [0 if alone in (None, i) else None for i in range(len(args))]
    given = g if alone is None else torch.diag(g)
    found = torch.func.vmap(lambda g, *a: torch.func.vjp(f, *a)[1](g), (0, *dims))(given, *args)
    return [v if v.dim() == 1 else v.diagonal() for v in found]


def forward(f, args, g):
    """Along g in one argument at a time, and along zeros in the others."""
    found, zeros = [], torch.zeros_like(g)
    for i in range(len(args)):
        with fwad.dual_level():
            duals = [fwad.make_dual(a, g if i == j else zeros) for j, a in enumerate(args)]
            found.append(fwad.unpack_dual(f(*duals)).tangent)
    return found


def jvp(f, args, g):
    """The same where the others have no tangents. A tangent has the dtype and the shape of the result."""
    found = []
    for i, moved in enumerate(args):
        alone = lambda value: f(*args[:i], value, *args[i + 1 :])  # noqa: E731
        result, tangent = torch.func.jvp(alone, (moved,), (g.to(moved.dtype).view_as(moved),))
        exact(torch.zeros_like(tangent), torch.zeros_like(result))
        found.append(tangent)
    return found


def one_by_one(f, args, g, way=reverse, vector=0):
    """At one point at a time, where one argument is a vector in float32 and the others are scalars in float64: the result
    is in float32."""
    found = []
    for *point, one in zip(*args, g):
        point[vector % len(args)] = point[vector % len(args)].float()[None]
        found.append([v.reshape(1).double() for v in way(f, point, one[None])])
    return [torch.cat(of_one) for of_one in zip(*found)]


CONTEXTS = {
    "eager": reverse,
    "in vectors": repeated,
    **{n: partial(repeated, dtype=getattr(torch, n)) for n in ("float32", "bfloat16", "float16")},
    "broadcast": broadcast,
    "double backward": twice,
    "forward over reverse": over_reverse,
    "dual numbers in backward": dual_backward,
    "vmap": vmapped,
    "forward mode": forward,
    "forward mode by jvp": jvp,
}
OF_TENSORS = {"bounds of no dimension": one_by_one}
for i in range(3):
    OF_TENSORS[f"vmap over argument {i}"] = partial(vmapped, alone=i)
    OF_TENSORS[f"forward mode of vector {i}"] = partial(one_by_one, way=jvp, vector=i)


# ---- Forms: functions of the Tensors among the arguments ------------------------------------------

OURS = {"CatBackward0", "CloneBackward0", "SplitBackward0"}  # nodes around those of the operators


def foreach(operator, suffix, of_numbers):
    """A third of our points in each place of a list of three Tensors, the others being unlike. The bounds are a list
    too, or one number for all."""
    function = getattr(torch, f"_foreach_{operator}{suffix}", None)

    def called(x, b):
        bounds = b.chunk(3) if isinstance(b, torch.Tensor) else [b] * 3
        found = []
        for place, part in enumerate(x.chunk(3)):
            tensors = [torch.full((n,), 2.5, dtype=x.dtype) for n in (2, 3, 4)]
            others = [2.5] * 3 if of_numbers else [t.clone() for t in tensors]
            tensors[place], others[place] = part.clone(), bounds[place]
            second = others if of_numbers or isinstance(b, torch.Tensor) else b
            found.append((function(tensors, second) or tensors)[place])
        return torch.cat(found)

    return function and called


def called_with(f, numbers, *tensors):
    return f(*tensors, *numbers)


def forms(operator, numbers):
    """{name: function}, with numbers for bounds if there are any."""
    found, changing = {}, getattr(torch.Tensor, operator + "_", None)
    if operator.startswith("clamp") or not numbers:  # else there are lists alone
        found[""] = getattr(torch, operator)
        found["in place"] = changing and (lambda x, *bounds: changing(x.clone(), *bounds))
    # It has a formula of its own. Up to 2.12 it ignores a NaN.
    if operator in ("clamp_min", "clamp_max") and all(n == n for n in numbers):
        bound = operator.removeprefix("clamp_")
        found["one bound of clamp"] = lambda x, b: torch.clamp(x, **{bound: b})
    for suffix, of_numbers in product(("", "_"), (False, True)[: 1 + bool(numbers)]):
        name = "foreach" + of_numbers * " of numbers" + (suffix and " in place")
        found[name] = foreach(operator, suffix, of_numbers)
    return {name: partial(called_with, f, numbers) for name, f in found.items() if f}


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
    for operator, kind in product(TABLE["operators"], ("numbers", "tensors")):
        for args, g in points(operator, kind):
            numbers = [a[0].item() for a in args[1:]] if kind == "numbers" else []
            variables = args[: len(args) - len(numbers)]
            yield operator, kind, forms(operator, numbers), variables, args, g


def rows(args, g, values):
    """A row for each point: its arguments, g, and the gradients."""
    values = [torch.zeros_like(g) if v is None else v.double() for v in values]
    return torch.stack([*args, g, *values], 1)


def beside(operator, bounds, name):
    """Next to numbers that no 16 bits hold. (Upstream compares some in float32 and some as forward rounds them, so it
    has two answers at the number as it is rounded.)"""
    rounded = torch.tensor(bounds, dtype=getattr(torch, name))
    x = torch.cat([torch.nextafter(rounded, torch.full_like(rounded, e)) for e in (-9, 9)])
    found = reverse(lambda x: getattr(torch, operator)(x, *bounds), [x], torch.ones_like(x))
    args = [x.double(), *(torch.full_like(x, b, dtype=torch.double) for b in bounds)]
    return rows(args, torch.ones_like(args[0]), found)


def gradients():
    """{operator, kind, mode: rows}, what raises, with its message, and for each form the names of the operators and nodes
    that its backward calls."""
    found, errors, ran = defaultdict(list), {}, defaultdict(set)
    for operator, kind, functions, variables, args, g in calls():
        for form, f in functions.items():
            ways = CONTEXTS | (OF_TENSORS if kind == "tensors" else {})
            if form:
                ways = {form: reverse, f"forward mode of {form}": forward}
            for mode, way in ways.items():
                with noted(errors, key := f"{operator}, {kind}, {mode}"):
                    found[key].append(rows(args, g, way(f, variables, g)))
                    if way is reverse:  # a dispatch mode would keep formulas from their kernels
                        with profile() as seen:
                            reverse(f, variables, g)
                        names = {event.name for event in seen.function_events} - OURS
                        ran[key] |= {name for name in names if "::engine::" not in name}
    bounds = {"clamp": (0.1, 0.7), "clamp_min": (0.1,), "clamp_max": (0.7,)}
    for operator, name in product(bounds, ("bfloat16", "float16")):
        found[f"{operator}, numbers, {name} beside"] = [beside(operator, bounds[operator], name)]
    return {k: torch.cat(v) for k, v in found.items() if k not in errors}, errors, dict(ran)


def compiled(backend):
    """The gradients of all operators, compiled as one function, forward and backward."""
    every = (call for call in calls() if "" in call[2])
    operators, kinds, functions, variables, args, gs = zip(*every)
    inputs = [leaves(of_one) for of_one in variables]

    def everything(inputs):
        return [f[""](*of_one) for f, of_one in zip(functions, inputs)]

    results = torch.compile(everything, backend=backend, fullgraph=True, dynamic=False)(inputs)
    values = iter(torch.autograd.grad(results, sum(inputs, []), gs, materialize_grads=True))
    found = defaultdict(list)
    for operator, kind, given, g, of_one in zip(operators, kinds, args, gs, inputs):
        mine = rows(given, g, [next(values) for _ in of_one])
        found[f"{operator}, {kind}, {backend}"].append(mine)
    return {key: torch.cat(parts) for key, parts in found.items()}
