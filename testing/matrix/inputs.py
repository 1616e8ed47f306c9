"""The arguments that the matrix enumerates, by what is special about them."""

from dataclasses import replace
from itertools import product
from math import prod

from oracle import CLAMPS
from testing.matrix.cells import Arg, inf, nan
from testing.matrix.reference import ARGUMENTS, TABLE

X = (-inf, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 7.0, inf, nan)
PAIRS = {
    "number": (0, 6),
    "float number": (-1, 1),
    "lo = hi": (1, 1),
    "lo > hi": (3, 1),
    "a fraction": (0.1, 0.5),
    "NaN below": (nan, 1),
    "NaN above": (0, nan),
    "NaN both": (nan, nan),
    "infinite": (-inf, inf),
}
# In float32 they are one number.
EQUAL_IN_FLOAT32 = (0.1, 0.1 + 5e-11, 0.1 + 1e-10)


def repeat_to_shape(values, shape):
    """As many values as the shape has, over and over."""
    n = prod(shape)
    return tuple((values * (n // max(len(values), 1) + 1))[:n])


def vector(values, dtype="float32", **more):
    return Arg(tuple(values), (len(values),), dtype, **more)


def points(operator):
    """Every way in which the arguments compare, one Tensor per argument."""
    rows = [p for row in TABLE["operators"][operator]["rows"] for p in row["points"]]
    return [tuple(float(p[i]) for p in rows) for i in range(len(ARGUMENTS[operator]))]


def one_or_two(operator, lo, hi):
    return {"clamp_min": (lo,), "clamp_max": (hi,)}.get(operator, (lo, hi))


def tensors(operator, dtype="float32", **more):
    return tuple(vector(v, dtype, **more) for v in points(operator))


def with_numbers(operator):
    x = vector(X)
    for name, pair in PAIRS.items():
        yield f"number: {name}", (x, *one_or_two(operator, *pair))
    yield "number: 0", (x, *one_or_two(operator, 0, 0))
    yield "integer x, numbers", (vector((-3, 0, 2, 9), "int64"), *one_or_two(operator, 0, 6))
    yield "uint8 x, numbers", (vector((0, 2, 9), "uint8"), *one_or_two(operator, 1, 6))
    for dtype in ("float16", "bfloat16", "float64"):
        bounds = one_or_two(operator, 0.1, 0.5)
        yield f"number: {dtype}", (vector((*X, 0.1, 0.5), dtype), *bounds)
    bounds = one_or_two(operator, EQUAL_IN_FLOAT32[0], EQUAL_IN_FLOAT32[2])
    yield "number: alike in float32", (vector((0.0, *EQUAL_IN_FLOAT32, 1.0), "float64"), *bounds)


def of_clamp_alone():
    x, half, low = vector(X), vector(X, "float16"), vector((0.0, 1.0, -1.0) * 4)
    return {
        "min alone, number": (x, 0, None),
        "max alone, number": (x, None, 6),
        "min alone, Tensor": (x, low, None),
        "max alone, Tensor": (x, None, low),
        "mixed: number, Tensor": (x, 0, vector((0.0, 6.0, 1.0, -1.0) * 3)),
        "mixed: Tensor, number": (x, low, 1),
        "mixed: number, 0-dim": (x, 0, Arg((6.0,), ())),
        "mixed: 0-dim, number": (x, Arg((0.0,), ()), 6),
        "mixed: number, frozen Tensor": (x, 0.5, replace(low, requires_grad=False)),
        "mixed: other dtype": (half, vector((0.0, 0.1, 1.0) * 4), 0.1),
        "mixed: other dtype above": (half, 0.1, vector((0.1, 1.0) * 6)),
        "mixed: uint8": (vector((1, 2), "uint8"), vector((-5, -5), "int64"), -1),
        "mixed: int8": (vector((1, 2), "int8"), vector((0, 500), "int64"), 1000),
        "mixed: int x, bfloat16": (vector((1,), "int64"), 0.0, vector((1.0,) * 5, "bfloat16")),
    }


def with_tensors(operator):
    values = points(operator)
    every = tensors(operator)
    yield "Tensors", every
    for i, name in enumerate(ARGUMENTS[operator]):
        for how, is_alone in (("frozen", False), ("alone", True)):
            some = (replace(a, requires_grad=(i == j) == is_alone) for j, a in enumerate(every))
            yield f"Tensors: {name} {how}", tuple(some)
    for dtype in ("float16", "bfloat16", "float64"):
        yield f"Tensors: {dtype}", tensors(operator, dtype)

    def beside(x, *bounds):
        return (x, *bounds[: len(every) - 1])

    def all_beside(x, bound):
        return beside(x, bound, bound)

    scalars = [Arg((v,), ()) for v in one_or_two(operator, 0.0, 6.0)]
    yield "0-dim bounds", beside(vector(X), *(scalars if operator in CLAMPS else [Arg((1.0,), ())]))
    yield "all 0-dim", all_beside(Arg((1.0,), ()), Arg((1.0,), ()))
    yield "0-dim x", all_beside(Arg((1.0,), ()), vector((0.0, 1.0, 2.0)))
    column, row = Arg((0.0, 1.0, nan), (3, 1)), Arg((1.0, 0.0, 6.0, 1.0), (1, 4))
    yield "broadcast bounds", beside(Arg(X, (3, 4)), column, row)
    yield "broadcast x", beside(column, row, Arg((1.0,), (1,)))
    for way, of_x, of_bounds in (("up", "float16", "float32"), ("down", "float32", "bfloat16")):
        dtypes = of_x, of_bounds, of_bounds
        yield f"bounds of another dtype, {way}", tuple(map(vector, values, dtypes))
    alike = list(zip(*product(EQUAL_IN_FLOAT32, repeat=len(every))))
    for what, of_x in (("float64", "float64"), ("bounds of float64", "float32")):
        dtypes = of_x, "float64", "float64"
        yield f"Tensors: {what}, alike in float32", tuple(map(vector, alike, dtypes))
    near = (Arg((v,), (), "float64") for v in (EQUAL_IN_FLOAT32[0], EQUAL_IN_FLOAT32[2]))
    yield "0-dim bounds of float64, alike in float32", beside(vector((0.0, 0.1, 1.0)), *near)
    yield "integer bounds", all_beside(vector(X), vector((0, 1, 6, 2) * 3, "int64"))
    integers = vector((0, 1, 2, 7), "int32")
    yield "integer x, Tensors", all_beside(integers, vector((0.0, 1.0, 6.0, 2.0)))
    yield "integers alone", all_beside(*[vector((0, 1, 2, 7), "int64")] * 2)


def inputs(operator):
    """(name, args) pairs; the names are what waivers and reports speak of."""
    return {
        **dict(with_numbers(operator) if operator in CLAMPS else ()),
        **(of_clamp_alone() if operator == "clamp" else {}),
        **dict(with_tensors(operator)),
    }


def shaped(operator, kind, shape, layout="plain"):
    """Small arguments of one shape: numbers, or Tensors of that shape."""
    x = Arg(repeat_to_shape(X, shape), shape, layout=layout)
    if kind == "numbers":
        return (x, *one_or_two(operator, 0, 6))
    low = Arg(repeat_to_shape((0.0, 1.0, -1.0, 2.0, 6.0), shape), shape, layout=layout)
    high = Arg(repeat_to_shape((6.0, 1.0, 0.0), shape), shape, layout=layout)
    return (x, *one_or_two(operator, low, high)[: len(ARGUMENTS[operator]) - 1])


SHAPES = {
    "size 0": (0,),
    "size 0 in 3": (2, 0, 3),
    "0-dim": (),
    "65 elements": (65,),
    "size 1": (2, 3, 1, 5),
    "16 dimensions": (2, 1) * 3 + (1,) * 9 + (2,),
}
LAID_OUT = {
    "16 dimensions, reversed": (SHAPES["16 dimensions"], "reversed"),
    "transposed": ((3, 5), "transposed"),
    "reversed": ((2, 3, 4), "reversed"),
    "reversed with size 1": ((4, 1, 6), "reversed"),
    "channels_last": ((2, 3, 2, 2), "channels_last"),
    "channels_last, size 1": ((2, 3, 1, 5), "channels_last"),
    "gaps": ((3, 4), "gaps"),
    "offset": ((13,), "offset"),
    "neg view": ((12,), "neg"),
    "conj view": ((12,), "conj"),
}


def layouts(operator):
    """(name, args): shapes and memory."""
    cases = {}
    for kind in ("numbers", "Tensors") if operator in CLAMPS else ("Tensors",):
        more = {f"{kind}: {name}": (shape, "plain") for name, shape in SHAPES.items()}
        more |= {f"{kind}: {name}": laid_out for name, laid_out in LAID_OUT.items()}
        cases |= {name: shaped(operator, kind, *how) for name, how in more.items()}
        if kind == "Tensors":
            x, *rest = shaped(operator, kind, (3, 4))
            for layout in ("neg", "transposed"):
                bounds = (replace(b, layout=layout) for b in rest)
                cases[f"Tensors: {layout} bound"] = (x, *bounds)
    return cases
