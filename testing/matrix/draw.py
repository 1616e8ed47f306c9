"""Draws a cell by an object like random.Random. Of each choice the simplest comes first, so that
Hypothesis shrinks towards it."""

from dataclasses import replace

from oracle import CLAMPS
from testing.matrix.cells import LAYOUTS, Arg, Cell, inf, nan
from testing.matrix.inputs import repeat_to_shape
from testing.matrix.reference import ARGUMENTS, GRADIENTS, PSEUDO
from testing.matrix.run import CONTEXTS, FORMS, applies, waived

# Ties come after the conversion to the result's dtype: 0.1 is another number in each.
VALUES = [0.0, 1.0, 2.0, -1.0, 0.1, 0.5, -0.0, inf, -inf, nan, 3.0, 1e-7, 65504.0]
NUMBERS = [0, 1, -1, 2, 0.0, 0.5, 0.1, 1.0, -0.0, inf, -inf, nan]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
CHEAP = [c for c in CONTEXTS if not CONTEXTS[c].costly]


def shapes(r, count):
    """Shapes that broadcast: each drops or shrinks some dimensions of one."""
    whole = [r.choice([0, 1, 2, 3, 4, 5, 2, 3]) for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3, 4]))]
    result = [tuple(whole)]
    for _ in range(count - 1):
        part = whole[r.choice([0, 0, 0, 1, len(whole)]) :]
        result.append(tuple(1 if r.choice([0, 0, 0, 1]) else n for n in part))
    r.shuffle(result)
    return result if r.choice([0, 1]) else [tuple(whole)] * count


def draw(r, whole=None, contexts=CHEAP):
    """A cell, or None where torch takes no such arguments or nothing fits."""
    operator = r.choice(list(ARGUMENTS))
    of_it = [g for g in GRADIENTS if operator in CLAMPS or g[0] not in PSEUDO]
    gradient, maximize = r.choice(of_it)
    # Most transforms and tracers take plain memory and one dtype.
    plain, one_dtype = r.choice([True, False]), r.choice([True, False])
    dtype = r.choice(FLOATS)
    args = []
    count = len(ARGUMENTS[operator])
    for shape in [whole] * count if whole else shapes(r, count):
        if args and operator in CLAMPS and r.choice([True, False]):
            args.append(r.choice(NUMBERS))
            continue
        arg_dtype = dtype if one_dtype else r.choice(FLOATS + INTEGERS)
        values = VALUES if arg_dtype in FLOATS else [0.0, 1.0, 2.0, 3.0]
        some = tuple(r.choice(values) for _ in range(r.choice([1, 2, 5, 8])))
        layouts = ["plain"] if plain or arg_dtype not in FLOATS else list(LAYOUTS)
        layouts = [n for n in layouts if n != "conj" or arg_dtype in ("float32", "float64")]
        requires_grad = not args or r.choice([True, False])
        args.append(
            Arg(repeat_to_shape(some, shape), shape, arg_dtype, r.choice(layouts), requires_grad)
        )
    if operator == "clamp" and r.choice(range(5)) == 0:
        args[r.choice([1, 2])] = None
    cell = Cell(operator, tuple(args), gradient, maximize, seed=r.choice(range(10)))
    try:
        cell.value  # noqa: B018  (torch's own operator may refuse)
    except RuntimeError:
        return None
    form = r.choice([f for f in FORMS if FORMS[f].accepts(cell)])
    contexts = [c for c in contexts if FORMS[form].writes <= CONTEXTS[c].records_nothing]
    cells = [replace(cell, form=form, context=c) for c in contexts]
    cells = [c for c in cells if applies(c) and not waived(c)]
    return r.choice(cells) if cells else None


def draw_together(r, count):
    """Cells of one shape and dtype, so that Inductor fuses them. Those that
    are pinned have one gradient."""
    cells, pins, dtype = [], set(), r.choice(FLOATS)
    while len(cells) < count:
        cell = draw(r, (8,), ["compile, Inductor"])
        if cell is None or {a.dtype for a in cell.tensor_args} != {dtype}:
            continue
        pin = {(cell.gradient, cell.maximize)} if FORMS[cell.form].pin else set()
        if len(pins | pin) < 2:
            pins |= pin
            cells.append(cell)
    return cells
