"""Gradients at every point of the table, in every mode, and compiled; which nodes ran and what they saved.

Asked by `verify` in a process of its own (process.py).
"""

from itertools import product

import torch
import torch.autograd.forward_ad as fwad
from torch.autograd.profiler import profile

OPERATORS = ("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin")
FOREACH = ("clamp_min", "clamp_max", "maximum", "minimum")
INCOMING = (1.0, -3.0, torch.inf, torch.nan)


# ---- Ways to differentiate: mode(f, args, g) -> a gradient per argument ----------------------------


def reverse(f, args, g):
    args = [a.clone().requires_grad_() for a in args]
    return torch.autograd.grad(f(*args), args, g, allow_unused=True)


def repeated(f, args, g):
    """Every point in the vectors of a kernel. (Elsewhere g is strided, so that a kernel takes one at a time.)"""
    copies = 17
    found = reverse(f, [a.repeat(copies) for a in args], g.repeat(copies))
    found = [None if v is None else v.view(copies, -1) for v in found]
    for v in (v for v in found if v is not None):
        torch.testing.assert_close(v, v[:1].expand_as(v), rtol=0, atol=0, equal_nan=True)
    return [v if v is None else v[0] for v in found]


def in_dtype(dtype):
    """Reverse mode in a dtype. Values of the table are exact in every dtype, and so are their quarters."""
    return lambda f, args, g: repeated(f, [a.to(dtype) for a in args], g.to(dtype))


def promoted(f, args, g):
    """The input in float32 and the bounds in float64: compared, and differentiated, in float64."""
    return reverse(f, [args[0].float(), *args[1:]], g)


def broadcast(f, args, g):
    """The input in two rows of which the second gets no gradient; the bounds sum over the rows."""
    x, *rest = args
    first, *others = reverse(f, [torch.stack([x, x]), *rest], torch.stack([g, torch.zeros_like(g)]))
    if first[1].any():
        raise AssertionError("a gradient of 0 came out as another")
    return [first[0], *others]


def without_dimensions(f, args, g):
    """Every bound as a Tensor of no dimension, one call per point."""
    calls = zip(*(a.split(1) for a in (*args, g)))
    found = [reverse(f, [x, *(b[0] for b in rest[:-1])], rest[-1]) for x, *rest in calls]
    return [torch.stack([v.reshape(()) for v in of_one]) for of_one in zip(*found)]


def over_reverse(f, args, g):
    """The gradient is linear in g, so the tangent of the gradient along g is the gradient of g."""
    function = torch.func.vjp(f, *args)[1]
    return torch.func.jvp(function, (torch.ones_like(g),), (g,))[1]


def dual_backward(f, args, g):
    """The same through the engine, with a gradient that is dual and no graph of backward."""
    args = [a.clone().requires_grad_() for a in args]
    y = f(*args)
    with fwad.dual_level():
        found = torch.autograd.grad(y, args, fwad.make_dual(torch.ones_like(g), g))
        return [fwad.unpack_dual(v).tangent for v in found]


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


def vmapped_alone(f, args, g):
    """Over one argument at a time, the others being the same for all of the batch: the diagonal has our points."""
    found = []
    for i in range(len(args)):

        def alone(a, of_one, i=i):
            return torch.func.vjp(f, *args[:i], a, *args[i + 1 :])[1](of_one)

        values = torch.func.vmap(alone)(args[i], torch.diag(g))
        found.append([v if v.dim() == 1 else v.diagonal() for v in values])
    for others in found[1:]:
        for a, b in zip(found[0], others):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    return found[0]


def compiled(f, args, g):
    torch.compiler.reset()
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


def of_several_dtypes(f, args, g):
    """Forward mode at one point at a time, where one argument is a vector in float32 and the others are scalars
    in float64: the result is in float32, and its tangents have its dtype and shape, whichever the vector is."""

    def tangents(vector, point, one):
        given = [a.float()[None] if i == vector else a for i, a in enumerate(point)]
        for i, moved in enumerate(given):

            def alone(value, i=i):
                return f(*given[:i], value, *given[i + 1 :])

            along = one.to(moved.dtype).expand_as(moved)
            result, tangent = torch.func.jvp(alone, (moved,), (along,))
            if (result.dtype, result.shape) != (tangent.dtype, tangent.shape):
                raise AssertionError(f"a tangent {tangent} of a result {result}")
            yield tangent.double()

    first, *others = [
        torch.stack([torch.cat(list(tangents(v, point, one))) for *point, one in zip(*args, g)])
        for v in range(len(args))
    ]
    for other in others:
        torch.testing.assert_close(other, first, rtol=0, atol=0, equal_nan=True)
    return list(first.unbind(1))


def jvp(f, args, g):
    zero = torch.zeros_like(g)
    return [
        torch.func.jvp(f, tuple(args), tuple(g if i == j else zero for j in range(len(args))))[1]
        for i in range(len(args))
    ]


REVERSE = {
    "eager": reverse,
    "in vectors": repeated,
    "float32": in_dtype(torch.float32),
    "bfloat16": in_dtype(torch.bfloat16),
    "float16": in_dtype(torch.float16),
    "broadcast": broadcast,
    "double backward": twice,
    "forward over reverse": over_reverse,
    "dual numbers in backward": dual_backward,
    "vjp": vjp,
    "vmap": vmapped,
    "aot_eager": compiled,
}
TENSORS_ONLY = {
    "promoted": promoted,
    "bounds of no dimension": without_dimensions,
    "vmap over one": vmapped_alone,
}
FORWARD = {"forward": forward, "jvp": jvp}
FORWARD_TENSORS = {"jvp of several dtypes": of_several_dtypes}


# ---- Ways to call: form(operator) -> a function of the arguments, or None where there is none -------


def in_place(operator):
    changing = getattr(torch.Tensor, operator + "_", None)
    return changing and (lambda x, *bounds: changing(x.clone(), *bounds))


def lists(suffix, scalars):
    """`_foreach_`, out of place or in place, with a list of two unlike Tensors: our points are the first of one call
    and the second of another. The bounds are a list too, or one number for all."""

    def of(operator):
        if operator not in FOREACH:
            return None
        function = getattr(torch, f"_foreach_{operator}{suffix}")

        def both(tensors, bounds):
            tensors = [t.clone() for t in tensors] if suffix else tensors
            return function(tensors, bounds) or tensors

        def called(x, b):
            k = len(x) // 2
            if isinstance(b, torch.Tensor):
                return torch.cat(tuple(both([x[:k], x[k:]], [b[:k], b[k:]])))
            if not scalars:
                return torch.cat(tuple(both([x[:k], x[k:]], b)))
            other, c = torch.full((3,), 2.5, dtype=x.dtype), 2.5
            return torch.cat([both([x[:k], other], [b, c])[0], both([other, x[k:]], [c, b])[1]])

        return called

    return of


def one_sided(operator):
    """The clamp with one bound, which has a formula of its own."""
    if operator not in ("clamp_min", "clamp_max"):
        return None
    return lambda x, b: torch.clamp(x, **{operator.removeprefix("clamp_"): b})


FORMS = {
    "in place": in_place,
    "foreach": lists("", False),
    "foreach in place": lists("_", False),
    "foreach of numbers": lists("", True),
    "foreach of numbers in place": lists("_", True),
    "one bound of clamp": one_sided,
}


def applied(function, bounds):
    """A function of the variables; the bounds that are numbers stand in it."""
    return lambda *args: function(*args, *bounds)


def calls(operator, kind):
    """(form, bounds of the table, the function of the variables), one for each pair of numbers."""
    from oracle import TABLE

    forms = {"": getattr(torch, operator)} | {n: make(operator) for n, make in FORMS.items()}
    points = [p for row in TABLE["operators"][operator]["rows"] for p in row["points"]]
    for bounds in sorted({str(p[1:]) for p in points}) if kind == "numbers" else [None]:
        chosen = [p for p in points if bounds in (None, str(p[1:]))]
        numbers = chosen[0][1:] if kind == "numbers" else ()
        rows = [(*p, g) for p, g in product(chosen, INCOMING)]
        *args, g = torch.tensor(rows, dtype=torch.float64).unbind(1)
        mine = {n: f for n, f in forms.items() if f and (kind == "numbers" or "numbers" not in n)}
        yield {n: applied(f, numbers) for n, f in mine.items()}, args, g, numbers


def cases(operator, kind):
    """Functions with the points they are called at: all points at once, or one call for a pair of numbers."""
    for forms, args, g, _ in calls(operator, kind):
        yield forms[""], args[:1] if kind == "numbers" else args, args, g


def kinds(operator):
    from oracle import TABLE

    scalar = "numbers" in TABLE["operators"][operator]["rows"][0]
    return ["numbers"] * scalar + ["tensors"]


def stacked(args, g, values):
    values = [torch.zeros_like(g) if v is None else v.double() for v in values]
    return torch.stack([*args, g, *values], 1).tolist()


# Numbers that no 16 bits hold. Upstream compares some in float32 and some as forward rounds them.
INEXACT = {"clamp": (0.1, 0.7), "clamp_min": (0.1,), "clamp_max": (0.7,)}


def beside(operator, dtype):
    """At the rounded bounds, next to them and away from them; the bounds stand in the rows unrounded."""
    bounds = INEXACT[operator]
    rounded = torch.tensor(bounds, dtype=dtype)
    ends = [torch.nextafter(rounded, torch.full_like(rounded, e)) for e in (-9, 9)]
    x = torch.cat([rounded, *ends, torch.tensor([-1.0, 0.4, 2.0], dtype=dtype)])
    (value,) = reverse(lambda x: getattr(torch, operator)(x, *bounds), [x], torch.ones_like(x))
    args = [x.double(), *(torch.full_like(x, b, dtype=torch.double) for b in bounds)]
    return stacked(args, torch.ones_like(args[0]), [value])


def ways_of(kind, forms, fast):
    """Every way to differentiate, and every form of the operator in reverse and in forward mode."""
    modes = REVERSE | FORWARD | (TENSORS_ONLY | FORWARD_TENSORS if kind == "tensors" else {})
    ways = {mode: (forms[""], way) for mode, way in modes.items()}
    for form in forms.keys() - {""}:
        ways[form] = (forms[form], reverse)
        ways[f"forward mode of {form}"] = (forms[form], forward)
    return {m: way for m, way in ways.items() if m != "aot_eager" or not fast}  # seconds each


def gradients():
    """{operator, kind, mode}: [for each point: args, g, gradients], and what raises, with its message."""
    found, errors = {}, {}

    def ask(key, rows):
        try:
            found.setdefault(key, []).extend(rows())
        except Exception as error:
            errors.setdefault(key, f"{type(error).__name__}: {error}".splitlines()[0])

    for operator, kind in [(o, k) for o in OPERATORS for k in kinds(o)]:
        for i, (forms, args, g, numbers) in enumerate(calls(operator, kind)):
            variables = args[:1] if kind == "numbers" else args
            for mode, (f, way) in ways_of(kind, forms, i > 2).items():
                if mode.endswith("one bound of clamp") and any(n != n for n in numbers):
                    continue  # up to 2.12 clamp with one bound ignores a NaN there
                key = f"{operator}, {kind}, {mode}"
                ask(key, lambda f=f, way=way: stacked(args, g, way(f, variables, g)))
    for operator in ("maximum", "minimum"):  # of numbers there are lists alone
        for forms, args, g, _ in calls(operator, "numbers"):
            for form in (n for n in forms if n.startswith("foreach")):
                for word, way in (("", reverse), ("forward mode of ", forward)):
                    key = f"{operator}, numbers, {word}{form}"
                    ask(key, lambda f=forms[form], way=way: stacked(args, g, way(f, args[:1], g)))
    for operator in INEXACT:
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
            ask(f"{operator}, numbers, {name} beside", lambda: beside(operator, dtype))
    return {"gradients": {k: v for k, v in found.items() if k not in errors}, "errors": errors}


def inductor():
    """Compiles all operators as one function, forward and backward, and runs it."""
    import torch._inductor.config

    torch._inductor.config.force_disable_caches = True
    keys, functions, inputs = [], [], []
    for operator, kind in [(o, k) for o in OPERATORS for k in kinds(o)]:
        for forms, args, g, _ in list(calls(operator, kind))[:2]:
            keys.append(f"{operator}, {kind}, Inductor")
            functions.append(forms[""])
            inputs.append((args, g, args[:1] if kind == "numbers" else args))

    def everything(variables):
        return [f(*v) for f, v in zip(functions, variables)]

    leaves = [[v.clone().requires_grad_() for v in variables] for _, _, variables in inputs]
    results = torch.compile(everything, fullgraph=True, dynamic=False)(leaves)
    flat = [v for of_one in leaves for v in of_one]
    values = iter(torch.autograd.grad(results, flat, [g for _, g, _ in inputs], allow_unused=True))
    found = {}
    for key, (args, g, variables) in zip(keys, inputs):
        rows = stacked(args, g, [next(values) for _ in variables])
        found.setdefault(key, []).extend(rows)
    return {"gradients": found}


# ---- What ran ------------------------------------------------------------------------------------------


def nodes():
    """For each form of each operator the grad_fn, and what it saved: its input, its result, bounds;
    and all operators that backward calls."""
    ran, saved, called = {}, {}, set()
    for operator, kind in [(o, k) for o in OPERATORS for k in kinds(o)]:
        forms, args, g, numbers = next(calls(operator, kind))
        for form, f in forms.items():
            variables = [a.clone().requires_grad_() for a in (args[:1] if numbers else args)]
            kept = []

            def keep(t, kept=kept):
                kept.append(t.data_ptr())
                return t

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
                y = f(*variables)
            key = ", ".join(filter(None, (operator, kind, form)))
            names = dict(zip((v.data_ptr() for v in variables), ("self", "bound", "bound")))
            names[y.data_ptr()] = "result"
            node = y.grad_fn
            if "foreach" in form:  # behind the cat
                node = node.next_functions[-1][0]
            ran[key] = node.name()
            with profile() as seen:  # a dispatch mode would keep formulas from their kernels
                torch.autograd.grad(y, variables, g)
            called |= {e.name.removeprefix("aten::") for e in seen.function_events}
            if "in place" not in form:  # there the input is a copy
                saved[key] = [names.get(pointer, "another") for pointer in kept]
    return {"nodes": ran, "saved": saved, "called": sorted(called)}
