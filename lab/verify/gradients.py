"""The gradients of clamp and its family at every point of the table: an operator in every context,
and each form of it in reverse and in forward mode; and what its nodes save.
"""

from collections import defaultdict
from contextlib import contextmanager
from functools import cache, partial
from itertools import combinations, product

import torch
import torch.autograd.forward_ad as fwad
from torch.autograd.profiler import profile
from torch.testing import assert_close

from oracle import TABLE

INCOMING = (1.0, -3.0, torch.inf, torch.nan)
CHUNK = 2**15  # of a parallel loop: at::internal::GRAIN_SIZE
exact = partial(assert_close, rtol=0, atol=0, equal_nan=True)


@contextmanager
def noted(errors, key):
    """An error ends the block, and its first line is noted."""
    try:
        yield
    except Exception as error:
        errors[key] = f"{type(error).__name__}: {error}".splitlines()[0]


# ---- Contexts: way(f, args, g) -> a gradient per argument ---------------------------------------


def leaves(tensors):
    return [t.clone().requires_grad_() for t in tensors]


def reverse(f, args, g):
    args = leaves(args)
    return torch.autograd.grad(f(*args), args, g, materialize_grads=True)


def in_part(f, args, g, some, constants=False):
    """The gradients of some arguments alone, the others being constants or only not asked for; in
    the places of the others, what they get when all are asked for. (The joint and the inclusive
    convention tell neither apart.)"""
    found, variables = [*reverse(f, args, g)], leaves(args)
    given = [v if i in some or not constants else v.detach() for i, v in enumerate(variables)]
    asked = [variables[i] for i in some]
    for i, v in zip(some, torch.autograd.grad(f(*given), asked, g, materialize_grads=True)):
        found[i] = v
    return found


def then_changed(f, args, g):
    """An operator in place after it: a formula that reads the result cannot have that."""
    return reverse(lambda *args: f(*args).mul_(2), args, g / 2)


def repeated(f, args, g, dtype=torch.float64, times=17):
    """Every point in the vectors of a kernel. (Elsewhere g is strided, so that a kernel takes one
    at a time.) Values of the table are exact in every dtype, and so are their quarters."""
    found = reverse(f, [a.to(dtype).repeat(times) for a in args], g.to(dtype).repeat(times))
    for v in found:
        exact(v, v[: len(g)].repeat(times))
    return [v[: len(g)] for v in found]


def in_chunks(f, args, g):
    """In several chunks of a parallel loop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return repeated(f, args, g, times=3 * CHUNK // len(g))
    finally:
        torch.set_num_threads(threads)


def without_elements(f, args, g):
    """Tensors of no elements first, whose gradients have none either."""
    for shape in ((0,), (3, 0)):
        none = [torch.empty(shape, dtype=a.dtype) for a in args]
        for v, a in zip(reverse(f, none, torch.empty(shape, dtype=g.dtype)), none):
            exact(v, a)
    return reverse(f, args, g)


def broadcast(f, args, g):
    """The input in float32 and in two rows, of which the second gets no gradient. Tensor bounds are
    promoted, and sum over the rows."""
    rows = torch.stack([args[0], args[0]]).float()
    first, *others = reverse(f, [rows, *args[1:]], torch.stack([g, torch.zeros_like(g)]))
    exact(first[1], torch.zeros_like(first[1]))
    return [first[0], *others]


def transposed(f, args, g):
    """In two dimensions, with a g that is not contiguous."""
    columns = [torch.stack([a, a]).t() for a in args]
    return [v[:, 0] for v in reverse(f, columns, torch.stack([g, g]).t())]


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


def over_forward(f, args, g):
    """Reverse over forward: the tangent is linear in that of each argument, and no
    element has to do with another."""
    tangents = leaves([torch.ones_like(a) for a in args])
    with fwad.dual_level():
        found = fwad.unpack_dual(f(*map(fwad.make_dual, args, tangents))).tangent
        return torch.autograd.grad(found, tangents, g, materialize_grads=True)


def vmapped(f, args, g, alone=None):
    """Over all arguments, or over one alone, the others being the same for all of the batch: then
    the diagonal has our points."""
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
    """The same where the others have no tangents. A tangent has the dtype
    and the shape of the result."""
    found = []
    for i, moved in enumerate(args):
        alone = lambda value: f(*args[:i], value, *args[i + 1 :])  # noqa: E731
        result, tangent = torch.func.jvp(alone, (moved,), (g.to(moved.dtype).view_as(moved),))
        exact(torch.zeros_like(tangent), torch.zeros_like(result))
        found.append(tangent)
    return found


def one_by_one(f, args, g, way=reverse, vector=None):
    """At one point at a time, where one argument is a vector in float32 and the others are scalars
    in float64: the result is in float32. Without a vector all are scalars."""
    found = []
    for *point, one in zip(*args, g):
        if vector is not None:
            point[vector % len(args)] = point[vector % len(args)].float()[None]
            one = one[None]
        found.append([v.reshape(1).double() for v in way(f, point, one)])
    return [torch.cat(of_one) for of_one in zip(*found)]


CONTEXTS = {
    "eager": reverse,
    "in vectors": repeated,
    "in chunks": in_chunks,
    "no elements": without_elements,
    "no dimension": one_by_one,
    "then changed": then_changed,
    **{n: partial(repeated, dtype=getattr(torch, n)) for n in ("float32", "bfloat16", "float16")},
    "broadcast": broadcast,
    "transposed": transposed,
    "double backward": twice,
    "forward over reverse": over_reverse,
    "dual numbers in backward": dual_backward,
    "vmap": vmapped,
    "forward mode": forward,
    "forward mode by jvp": jvp,
    "reverse over forward mode": over_forward,
}
OF_TENSORS = {}
for i in range(3):
    OF_TENSORS[f"vmap over argument {i}"] = partial(vmapped, alone=i)
    OF_TENSORS[f"vector {i} beside scalars"] = partial(one_by_one, vector=i)
    OF_TENSORS[f"forward mode of vector {i}"] = partial(one_by_one, way=jvp, vector=i)


@cache
def names(operator):
    """Those of its arguments in PyTorch."""
    overloads = getattr(torch.ops.aten, operator)
    overload = "Tensor" if "Tensor" in overloads.overloads() else "default"
    return [argument.name for argument in getattr(overloads, overload)._schema.arguments]


def parts(operator):
    """Some of its arguments, but not all, by how a mode says it."""
    every = names(operator)
    for n in range(1, len(every)):
        for some in combinations(range(len(every)), n):
            yield " and ".join(every[i] for i in some), some


# ---- Forms: functions of the Tensors among the arguments ----------------------------------------

OURS = {"CatBackward0", "CloneBackward0", "SplitBackward0"}  # nodes around those of the operators


def foreach(operator, suffix, of_numbers):
    """A third of our points in each place of a list of three Tensors, the others being unlike. The
    bounds are a list too, or one number for all."""
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


def written(numbers):
    """The same numbers as int or bool, all of them or some, by how they are written."""
    every = [
        [n, *(kind(n) for kind in (int, bool) if abs(n) < torch.inf and kind(n) == n)]
        for n in numbers
    ]
    for given in product(*every):
        if kinds := {type(n).__name__ for n in given} - {"float"}:
            yield " and ".join(sorted(kinds)), given


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
    """(operator, kind, forms, variables, args, g): functions of the variables,
    with points to call them at."""
    for operator, kind in product(TABLE["operators"], ("numbers", "tensors")):
        for args, g in points(operator, kind):
            numbers = [a[0].item() for a in args[1:]] if kind == "numbers" else []
            variables = args[: len(args) - len(numbers)]
            yield operator, kind, forms(operator, numbers), variables, args, g


def copied(t):
    """With its strides, which `clone` does not keep of a column."""
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)


def rows(args, g, values):
    """A row for each point: its arguments, g, and the gradients."""
    values = [torch.zeros_like(g) if v is None else v.double() for v in values]
    return torch.stack([*args, g, *values], 1)


# ---- Numbers that no binary dtype holds ----------------------------------------------------------

# Of .1 and .8 the nearest number in float32 is greater, of .7 it is less, so a
# wrong dtype shows on either side.
BOUNDS = {"clamp": ((0.1, 0.7), (0.7, 0.8))}  # of the others: one of these
ALONE = ((0.1,), (0.7,))
# A dtype of `self`, and one of the other Tensors: what they are compared in holds both.
PAIRS = (
    ("float32", "float64"),
    ("float64", "float32"),
    ("bfloat16", "float32"),
    ("float16", "bfloat16"),
)


def around(bounds, dtype):
    """The bounds as a dtype rounds them, and the numbers next to them."""
    rounded = torch.tensor(bounds, dtype=dtype)
    ends = [torch.full_like(rounded, e) for e in (-9, 9)]
    return torch.cat([*(torch.nextafter(rounded, end) for end in ends), rounded])


def beside(operator, bounds, dtype):
    """Around numbers as bounds. In 16 bits only next to them: upstream compares some in float32 and
    some as forward rounds them, so it has two answers at the number as it is rounded."""
    rounds = dtype.itemsize > 2
    x = around(bounds, dtype)[: None if rounds else 2 * len(bounds)]
    found = reverse(lambda x: getattr(torch, operator)(x, *bounds), [x], torch.ones_like(x))
    others = [torch.full(x.shape, b, dtype=dtype if rounds else torch.double) for b in bounds]
    return rows([a.double() for a in (x, *others)], torch.ones(len(x), dtype=torch.double), found)


def beside_tensors(operator, bounds, mine, others):
    """The same with Tensors of another dtype for bounds: these, a little more, and next to what
    `self` makes of them. They are as exact as what both are promoted to."""
    near = [
        sorted(
            {b, b + 1e-10, *around([b], others).tolist(), *around([b], mine).to(others).tolist()}
        )
        for b in bounds
    ]
    x = {*around(bounds, mine).tolist(), *around(bounds, others).to(mine).tolist()}
    columns = zip(*product(sorted(x), *near))
    x, *rest = (torch.tensor(c, dtype=d) for c, d in zip(columns, (mine, *[others] * len(bounds))))
    g = torch.ones(len(x), dtype=torch.promote_types(mine, others))
    found = reverse(getattr(torch, operator), [x, *rest], g)
    return rows([a.double() for a in (x, *rest)], g.double(), found)


def beside_scalars(operator, bounds, mine, others):
    """And with Tensors that have no dimension, whose dtype does not count: they are compared as
    forward rounds them. (Two bounds that differ, and are rounded to one number, are left out: there
    upstream does not follow its forward.)"""
    found = []
    for x in around(bounds, mine):
        args = [x[None], *(torch.tensor(b, dtype=others) for b in bounds)]
        values = reverse(getattr(torch, operator), args, torch.ones_like(args[0]))
        args = [a.to(mine).double().reshape(1) for a in args]
        found.append(rows(args, torch.ones(1, dtype=torch.double), [v.reshape(1) for v in values]))
    return torch.cat(found)


# Bounds of another dtype than `self`, one of which may have no dimension, or whole numbers: a pair
# of them alone promotes to another dtype than all three do.
MIXED = {
    "one bound of no dimension": ("float32", [0.1], "float64", 0.1, [5.0]),
    "the other of no dimension": ("float32", [0.7], "float64", [-5.0], 0.7),
    "near each other and of no dimension": ("float32", [0.1], "float64", 0.1, 0.1 + 1e-10),
    "whole numbers in float32": ("float32", [2**24], "int64", [2**24], [2**24 + 1]),
    "whole numbers in float16": ("float16", [2048], "int64", [2048], [2049]),
}
ROUNDED = "as forward rounds"


def mixed(self_dtype, x, dtype, *bounds):
    """Of `self` alone (whole numbers have no gradient), which is the same with a graph and in
    forward mode. The row has the arguments as forward rounds them: the inner one of these points is
    inside, or equal to both bounds."""
    x = torch.tensor(x, dtype=getattr(torch, self_dtype))
    bounds = [torch.tensor(b, dtype=getattr(torch, dtype)) for b in bounds]
    f = lambda x: torch.clamp(x, *bounds)  # noqa: E731
    y = f(x)
    g = torch.ones_like(y)
    (found,) = reverse(f, [x], g)
    v = x.clone().requires_grad_()
    exact(torch.autograd.grad(f(v), v, g, create_graph=True)[0].detach(), found)
    exact(torch.func.vjp(f, x)[1](g)[0], found)
    exact(torch.func.jvp(f, (x,), (torch.ones_like(x),))[1].to(x.dtype), found)
    point = [a.to(y.dtype).double().reshape(1) for a in (x, *bounds)]
    return rows(point, g.double(), [found, None, None])


def inexact():
    """(key, rows): all of these."""
    for operator, kinds in ((o, t["rows"][0]) for o, t in TABLE["operators"].items()):
        for bounds in BOUNDS.get(operator, ALONE):
            if "numbers" in kinds and operator.startswith("clamp"):
                for name in ("float32", "bfloat16", "float16"):
                    rows_of = beside(operator, bounds, getattr(torch, name))
                    yield f"{operator}, numbers, {name} beside", rows_of
            for pair in PAIRS:
                dtypes = [getattr(torch, name) for name in pair]
                for what, way in (("", beside_tensors), (" of no dimension", beside_scalars)):
                    key = f"{operator}, tensors, {pair[0]} beside {pair[1]}{what}"
                    yield key, way(operator, bounds, *dtypes)


# ---- What is saved -------------------------------------------------------------------------------


def saved(f, args, named):
    """What the nodes keep of a call: whose memory each Tensor is, its dtype and its shape."""
    kept = []

    def pack(t):
        kept.append((t.untyped_storage().data_ptr(), f"{str(t.dtype)[6:]} {list(t.shape)}"))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = f(*args)
    if not isinstance(y, torch.Tensor):
        return []
    whose = {y.untyped_storage().data_ptr(): "the result"}
    whose |= {a.untyped_storage().data_ptr(): name for a, name in zip(args, named)}
    return sorted(f"{whose.get(place, 'a Tensor of its own')}: {what}" for place, what in kept)


# ---- All of them ---------------------------------------------------------------------------------


def ways_of(operator, kind, form):
    """{mode: context} of a form."""
    ways = {form: reverse, f"forward mode of {form}": forward} if form else dict(CONTEXTS)
    if kind == "tensors":
        ways |= {} if form else OF_TENSORS
        for listed, some in parts(operator):
            ways[f"{form or 'eager'} ({listed} asked for)"] = partial(in_part, some=some)
            ways[f"{form or 'eager'} ({listed} differentiable)"] = partial(
                in_part, some=some, constants=True
            )
    if form == "in place":
        ways["in place then changed"] = then_changed
    return ways


def gradients():
    """{operator, kind, mode: rows}, what raises, with its message, for each form the names of the
    operators and nodes that its backward calls, and what is saved."""
    found, errors, ran, kept = defaultdict(list), {}, defaultdict(set), defaultdict(list)

    def ask(key, way, f, variables, args, g):
        """Whoever gives g keeps it: a formula must not write to it."""
        with noted(errors, key):
            found[key].append(rows(args, g, way(f, variables, given := copied(g))))
            exact(given, g)

    for operator, kind, functions, variables, args, g in calls():
        named = names(operator)[: len(variables)]
        every = [("", range(len(variables))), *(parts(operator) if kind == "tensors" else ())]
        for form, f in functions.items():
            for mode, way in ways_of(operator, kind, form).items():
                ask(key := f"{operator}, {kind}, {mode}", way, f, variables, args, g)
                if (
                    way is reverse and key not in errors
                ):  # a dispatch mode would keep formulas from their kernels
                    with profile() as seen:
                        reverse(f, variables, copied(g))
                    seen = {event.name for event in seen.function_events} - OURS
                    ran[key] |= {name for name in seen if "::engine::" not in name}
            for listed, some in every:
                given = [v.clone().requires_grad_(i in some) for i, v in enumerate(variables)]
                key = f"{operator}, {kind}, {form or 'eager'}{listed and f' ({listed} differentiable)'}"
                with noted({}, key):  # what raises has been noted
                    kept[key] += saved(f, given, named)
        for how, numbers in written([a[0].item() for a in args[len(variables) :]]):
            for form, f in forms(operator, numbers).items():
                for mode, way in (("", reverse), ("forward mode of ", forward)):
                    key = f"{operator}, {kind}, {mode}{form or 'eager'} with {how}"
                    ask(key, way, f, variables, args, g)
    for key, of_key in inexact():
        found[key].append(of_key)
    for what, point in MIXED.items():
        with noted(errors, key := f"clamp, tensors, {what} {ROUNDED}"):
            found[key].append(mixed(*point))
    return (
        {k: torch.cat(v) for k, v in found.items() if k not in errors},
        errors,
        dict(ran),
        dict(kept),
    )


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
