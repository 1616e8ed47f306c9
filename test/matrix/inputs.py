"""The arguments that the matrix enumerates, by what is special about them."""

from dataclasses import replace
from math import prod

from matrix.cells import Arg, inf, nan
from matrix.reference import ARGUMENTS, CLAMPS, TABLE

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


def grown(values, shape):
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


def inputs(operator):
    """(name, args) pairs; the names are what waivers and reports speak of."""
    found = {}
    if operator in CLAMPS:
        x = vector(X)
        for name, pair in PAIRS.items():
            found[f"number: {name}"] = (x, *one_or_two(operator, *pair))
        found["number: 0"] = (x, *one_or_two(operator, 0, 0))
        found["integer x, numbers"] = (vector((-3, 0, 2, 9), "int64"), *one_or_two(operator, 0, 6))
        found["uint8 x, numbers"] = (vector((0, 2, 9), "uint8"), *one_or_two(operator, 1, 6))
        for dtype in ("float16", "bfloat16", "float64"):
            found[f"number: {dtype}"] = (
                vector((*X, 0.1, 0.5), dtype),
                *one_or_two(operator, 0.1, 0.5),
            )
    if operator == "clamp":
        x = vector(X)
        low = vector((0.0, 1.0, -1.0) * 4)
        found["min alone, number"] = (x, 0, None)
        found["max alone, number"] = (x, None, 6)
        found["min alone, Tensor"] = (x, low, None)
        found["max alone, Tensor"] = (x, None, low)
        found["mixed: number, Tensor"] = (x, 0, vector((0.0, 6.0, 1.0, -1.0) * 3))
        found["mixed: Tensor, number"] = (x, low, 1)
        found["mixed: number, 0-dim"] = (x, 0, Arg((6.0,), ()))
        found["mixed: 0-dim, number"] = (x, Arg((0.0,), ()), 6)
        found["mixed: number, frozen Tensor"] = (x, 0.5, replace(low, want=False))
        found["mixed: other dtype"] = (vector(X, "float16"), vector((0.0, 0.1, 1.0) * 4), 0.1)
        found["mixed: other dtype above"] = (vector(X, "float16"), 0.1, vector((0.1, 1.0) * 6))
        found["mixed: uint8"] = (vector((1, 2), "uint8"), vector((-5, -5), "int64"), -1)
        found["mixed: int8"] = (vector((1, 2), "int8"), vector((0, 500), "int64"), 1000)
        found["mixed: int x, bfloat16"] = (
            vector((1,), "int64"),
            0.0,
            vector((1.0,) * 5, "bfloat16"),
        )
    every = tensors(operator)
    found["Tensors"] = every
    for i, name in enumerate(ARGUMENTS[operator]):
        found[f"Tensors: {name} frozen"] = tuple(
            replace(a, want=False) if i == j else a for j, a in enumerate(every)
        )
        found[f"Tensors: {name} alone"] = tuple(
            a if i == j else replace(a, want=False) for j, a in enumerate(every)
        )
    for dtype in ("float16", "bfloat16", "float64"):
        found[f"Tensors: {dtype}"] = tensors(operator, dtype)
    x, *rest = every
    found["0-dim bounds"] = (
        vector(X),
        *(Arg((v,), ()) for v in one_or_two(operator, 0.0, 6.0)[: len(rest)]),
    )
    if operator not in CLAMPS:
        found["0-dim bounds"] = (vector(X), Arg((1.0,), ()))
    found["all 0-dim"] = tuple(Arg((1.0,), ()) for _ in every)
    found["0-dim x"] = (Arg((1.0,), ()), *(vector((0.0, 1.0, 2.0)) for _ in rest))
    column = Arg((0.0, 1.0, nan), (3, 1))
    row = Arg((1.0, 0.0, 6.0, 1.0), (1, 4))
    found["broadcast bounds"] = (Arg(X, (3, 4)), *(column, row)[: len(rest)])
    found["broadcast x"] = (column, *(row, Arg((1.0,), (1,)))[: len(rest)])
    found["bounds of another dtype, up"] = (
        vector(points(operator)[0], "float16"),
        *(vector(v, "float32") for v in points(operator)[1:]),
    )
    found["bounds of another dtype, down"] = (
        vector(points(operator)[0], "float32"),
        *(vector(v, "bfloat16") for v in points(operator)[1:]),
    )
    found["integer bounds"] = (vector(X), *(vector((0, 1, 6, 2) * 3, "int64") for _ in rest))
    found["integer x, Tensors"] = (
        vector((0, 1, 2, 7), "int32"),
        *(vector((0.0, 1.0, 6.0, 2.0)) for _ in rest),
    )
    found["integers alone"] = tuple(vector((0, 1, 2, 7), "int64") for _ in every)
    return found


def shaped(operator, kind, shape, layout="plain"):
    """Small arguments of one shape: numbers, or Tensors of that shape."""
    x = Arg(grown(X, shape), shape, layout=layout)
    if kind == "numbers":
        return (x, *one_or_two(operator, 0, 6))
    low = Arg(grown((0.0, 1.0, -1.0, 2.0, 6.0), shape), shape, layout=layout)
    high = Arg(grown((6.0, 1.0, 0.0), shape), shape, layout=layout)
    return (x, *one_or_two(operator, low, high)[: len(ARGUMENTS[operator]) - 1])


SHAPES = {
    "size 0": (0,),
    "size 0 in 3": (2, 0, 3),
    "0-dim": (),
    "65 elements": (65,),
    "size 1": (2, 3, 1, 5),
    "16 dimensions": (2, 1) * 3 + (1,) * 9 + (2,),
}


def layouts(operator):
    """(name, args): shapes and memory."""
    found = {}
    for kind in ("numbers", "Tensors") if operator in CLAMPS else ("Tensors",):
        for name, shape in SHAPES.items():
            found[f"{kind}: {name}"] = shaped(operator, kind, shape)
        found[f"{kind}: 16 dimensions, reversed"] = shaped(
            operator, kind, SHAPES["16 dimensions"], "reversed"
        )
        found[f"{kind}: transposed"] = shaped(operator, kind, (3, 5), "transposed")
        found[f"{kind}: reversed"] = shaped(operator, kind, (2, 3, 4), "reversed")
        found[f"{kind}: reversed with size 1"] = shaped(operator, kind, (4, 1, 6), "reversed")
        found[f"{kind}: channels_last"] = shaped(operator, kind, (2, 3, 2, 2), "channels_last")
        found[f"{kind}: channels_last, size 1"] = shaped(
            operator, kind, (2, 3, 1, 5), "channels_last"
        )
        found[f"{kind}: gaps"] = shaped(operator, kind, (3, 4), "gaps")
        found[f"{kind}: offset"] = shaped(operator, kind, (13,), "offset")
        found[f"{kind}: neg view"] = shaped(operator, kind, (12,), "neg")
        found[f"{kind}: conj view"] = shaped(operator, kind, (12,), "conj")
        if kind == "Tensors":
            x, *rest = shaped(operator, kind, (3, 4))
            found["Tensors: neg bound"] = (x, *(replace(b, layout="neg") for b in rest))
            found["Tensors: transposed bound"] = (
                x,
                *(replace(b, layout="transposed") for b in rest),
            )
    return found
