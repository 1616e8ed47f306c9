"""What the contract asks of one call: the table, looked up element by element, in plain torch.

Nothing of the package is used here. How the arguments of an element compare decides its row; the row
holds the factors; a factor of 0 blocks whatever the incoming gradient is.
"""

from fractions import Fraction
from functools import cache
from itertools import combinations

import torch

from oracle import CONVENTIONS, PSEUDO, TABLE, signature

ARGUMENTS = {name: tuple(o["arguments"]) for name, o in TABLE["operators"].items()}
CLAMPS = tuple(TABLE["pseudo_gradients"]["operators"])
# Every gradient that can be asked for: the name and `maximize`.
GRADIENTS = tuple((c, False) for c in CONVENTIONS) + tuple(
    (c, True) for c in PSEUDO if f"{c}, maximize" in TABLE["pseudo_gradients"]["rows"][0]
)


@cache
def rows_by_signature(operator):
    names = ARGUMENTS[operator]
    size = 2 ** len(names) * 4 ** len(list(combinations(names, 2)))
    found = torch.full((size,), -1)
    for i, row in enumerate(TABLE["operators"][operator]["rows"]):
        for point in row["points"]:
            found[signature(*torch.tensor(point, dtype=torch.float64).unbind())] = i
    return found


@cache
def divisors(operator, kind, convention, differentiated):
    """By row and argument: what the gradient is divided by; 0 where it is blocked."""
    names, table = ARGUMENTS[operator], []
    for row in TABLE["operators"][operator]["rows"]:
        factors = row[kind][convention] if kind == "tensors" else [row[kind][convention]]
        tied = convention == "min_norm" and len(row["active"]) > 1
        if tied and not differentiated >= set(row["active"]):
            factors = [0] * len(factors)
        factors = [Fraction(f) for f in factors]
        table.append([1 / f if f else Fraction(0) for f in factors])
    assert all(d.denominator == 1 for row in table for d in row), f"{names}: no unit fraction"
    return torch.tensor([[int(d) for d in row] for row in table])


def divided(g, divisor):
    """In float64 and rounded once, which is exact for every dtype."""
    return torch.where(divisor == 0, 0, g.double() / divisor.clamp(min=1)).to(g.dtype)


def shares(operator, convention, args, differentiated, g):
    """The gradient of each argument before broadcasting is undone. None stands for a number's.

    `args` are Tensors of the result's dtype; `differentiated` says of each whether it is, or is
    None where all bounds are numbers.
    """
    names = ARGUMENTS[operator]
    rows = rows_by_signature(operator)[signature(*args)]
    assert (rows >= 0).all(), f"{operator}: an element is in no row of the table"
    kind = "numbers" if differentiated is None else "tensors"
    chosen = names[:1] if differentiated is None else names
    who = frozenset(n for n, d in zip(names, differentiated or ()) if d)
    table = divisors(operator, kind, convention, who)
    return [divided(g, table[rows, i]) for i in range(len(chosen))]


def pseudo_rows(convention, maximize, x, y, g):
    """What the table says of x, "g" or a number, and where."""
    key = convention + (", maximize" if maximize else "")
    positions = {"x = y": x == y, "x < y": x < y, "x > y": x > y, "y is NaN": y.isnan()}
    columns = {"g < 0": g < 0, "g = 0": g == 0, "g > 0": g > 0, "g is NaN": g.isnan()}
    for row in TABLE["pseudo_gradients"]["rows"]:
        for column, what in zip(TABLE["pseudo_gradients"]["columns"], row[key]):
            yield what, positions[row["position"]] & columns[column]


def pseudo_of_x(convention, maximize, x, y, g):
    result = torch.full_like(g, torch.nan)
    for what, here in pseudo_rows(convention, maximize, x, y, g):
        result = torch.where(here, g if what == "g" else float(what), result)
    return result


def let_through(convention, maximize, x, y, g):
    """Where a pseudo-gradient of x is the incoming one, whatever that is."""
    rows = pseudo_rows(convention, maximize, x, y, g)
    return torch.stack([here for what, here in rows if what == "g"]).any(0)


def pseudo_shares(operator, convention, maximize, args, differentiated, g, y):
    x, names = args[0], ARGUMENTS[operator]
    gradients = [pseudo_of_x(convention, maximize, x, y, g)]
    if differentiated is not None:
        active = [row["active"] for row in TABLE["operators"][operator]["rows"]]
        bounds_alone = torch.tensor([names[0] not in a for a in active])
        rows = rows_by_signature(operator)[signature(*args)]
        beside = bounds_alone[rows] & (x != y) & ~y.isnan()
        exact = shares(operator, "min_norm", args, differentiated, g)
        gradients += [torch.where(beside, share, 0) for share in exact[1:]]
    return gradients


def at_once(operator, convention, maximize, args, differentiated, g, y):
    if convention in PSEUDO:
        return pseudo_shares(operator, convention, maximize, args, differentiated, g, y)
    return shares(operator, convention, args, differentiated, g)


def in_steps(convention, args, differentiated, g):
    """clamp_max(clamp_min(x, lo), hi), each step with the rule of its own kind."""
    x, lo, hi = args
    raised = torch.clamp_min(x, lo)
    y = torch.clamp_max(raised, hi)

    def step(operator, a, bound, wants, g):
        numeric = not isinstance(bound, torch.Tensor)
        bound = torch.as_tensor(bound, dtype=g.dtype)
        who = None if numeric else wants
        found = shares(operator, convention, (a.to(g.dtype), bound), who, g)
        return found[0], None if numeric else found[1]

    through = differentiated[0] or differentiated[1]
    of_raised, of_hi = step("clamp_max", raised, hi, (through, differentiated[2]), g)
    of_raised = of_raised.to(raised.dtype)
    of_x, of_lo = step("clamp_min", x, lo, differentiated[:2], of_raised)
    return y, [of_x, of_lo, of_hi]


def is_mixed(args):
    given = [isinstance(a, torch.Tensor) for a in args[1:]]
    return any(given) and not all(given)


def forward(operator, args):
    """torch's own operator; one number and one Tensor are one step after the other."""
    if is_mixed(args):
        return torch.clamp_max(torch.clamp_min(args[0], args[1]), args[2])
    return getattr(torch, operator)(*args)


def gradients(operator, convention, maximize, args, differentiated, g):
    """The gradient of every argument, in the shape of the result and the dtype of the argument.

    None for numbers. `differentiated` has one entry per argument, False for numbers.
    """
    y = forward(operator, args)
    if is_mixed(args) and convention not in (*PSEUDO, "min_norm"):
        _, found = in_steps(convention, args, differentiated, g)
    else:
        # A number is what its own step makes of it.
        raised = torch.clamp_min(*args[:2]).dtype if is_mixed(args) else y.dtype
        steps = (None, raised, y.dtype)
        compared = [
            torch.as_tensor(a, dtype=a.dtype if isinstance(a, torch.Tensor) else d).to(y.dtype)
            for a, d in zip(args, steps)
        ]
        numbers = not any(isinstance(a, torch.Tensor) for a in args[1:])
        who = None if numbers else differentiated
        found = at_once(operator, convention, maximize, compared, who, g, y)
    found += [None] * (len(args) - len(found))
    return [
        share.expand(y.shape) if isinstance(a, torch.Tensor) else None
        for a, share in zip(args, found)
    ]
