"""The gradients that the contract requires of one call, by oracle.py: any
number of Tensors and numbers.

This uses nothing of the package. A factor of 0 blocks whatever the incoming gradient is.
"""

import torch

from oracle import CONVENTIONS, PSEUDO, TABLE, TWO_STEP, factors, pseudo_gradient, selection

ARGUMENTS = {name: tuple(o["arguments"]) for name, o in TABLE["operators"].items()}
# Every gradient that can be asked for: the name and `maximize`.
GRADIENTS = tuple((c, False) for c in CONVENTIONS) + tuple(
    (c, True) for c in PSEUDO if f"{c}, maximize" in TABLE["pseudo_gradients"]["rows"][0]
)


def divided(g, factor):
    """g divided by a whole number, in float64 and rounded once, which is exact for every dtype."""
    return torch.where(factor == 0, 0, g.double() / (1 / factor).round()).to(g.dtype)


def shares(operator, convention, args, differentiated, g):
    """The gradient of each argument before broadcasting is undone. None stands for a number's.

    `args` are Tensors of the result's dtype; `differentiated` has a bool for each, or is
    None if all bounds are numbers.
    """
    if differentiated is None:
        every_factor = factors(operator, "numbers", convention, args)
    else:
        who = [n for n, d in zip(ARGUMENTS[operator], differentiated) if d]
        every_factor = factors(operator, "tensors", convention, args, who)
    return [divided(g, factor) for factor in every_factor]


def pseudo_share(convention, maximize, x, y, g):
    """Where a pseudo-gradient passes the incoming gradient to x, whatever that is."""
    chosen = selection(convention, maximize, x.expand_as(y), y, g)
    return torch.tensor([c == "g" for c in chosen], dtype=torch.bool).view_as(y)


def pseudo_shares(operator, convention, maximize, args, differentiated, g, y):
    x = args[0]
    gradients = [pseudo_gradient(convention, maximize, x.expand_as(y), y, g)]
    if differentiated is not None:
        x_has_a_share = factors(operator, "tensors", "min_norm", args)[0] != 0
        beside = ~x_has_a_share & (x != y) & ~y.isnan()
        exact = shares(operator, "min_norm", args, differentiated, g)
        gradients += [torch.where(beside, share, 0) for share in exact[1:]]
    return gradients


def shares_in_one_step(operator, convention, maximize, args, differentiated, g, y):
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
        of_a, *of_bound = shares(operator, convention, (a.to(g.dtype), bound), who, g)
        return of_a, None if numeric else of_bound[0]

    through = differentiated[0] or differentiated[1]
    of_raised, of_hi = step("clamp_max", raised, hi, (through, differentiated[2]), g)
    of_raised = of_raised.to(raised.dtype)
    of_x, of_lo = step("clamp_min", x, lo, differentiated[:2], of_raised)
    return y, [of_x, of_lo, of_hi]


def is_mixed(args):
    given = [isinstance(a, torch.Tensor) for a in args[1:] if a is not None]
    return any(given) and not all(given)


def forward(operator, args):
    """torch's own operator; one number and one Tensor are one step after the other."""
    if is_mixed(args):
        return torch.clamp_max(torch.clamp_min(args[0], args[1]), args[2])
    return getattr(torch, operator)(*args)


def bound_in(number, dtype):
    """A number as bound. Releases differ below the range of an unsigned dtype, so the
    least integer stands for it."""
    if dtype.is_floating_point:
        return torch.as_tensor(number, dtype=dtype)
    return torch.clamp_min(torch.full((), torch.iinfo(dtype).min, dtype=dtype), number)


def gradients(operator, convention, maximize, args, differentiated, g, y):
    """The gradient of every argument, in the shape of the result y and the dtype of the argument.

    None for numbers. `differentiated` has one entry per argument, False for numbers.
    """
    # Under half in steps too, though both implementations take the rule of three: it is the same.
    if is_mixed(args) and convention in (*TWO_STEP, "half"):
        _, result = in_steps(convention, args, differentiated, g)
    else:
        # Each step converts its own number.
        raised = torch.clamp_min(*args[:2]).dtype if is_mixed(args) else y.dtype
        steps = (None, raised, y.dtype)
        compared = [
            (a if isinstance(a, torch.Tensor) else bound_in(a, d)).to(y.dtype)
            for a, d in zip(args, steps)
        ]
        numbers = not any(isinstance(a, torch.Tensor) for a in args[1:])
        who = None if numbers else differentiated
        result = shares_in_one_step(operator, convention, maximize, compared, who, g, y)
    result += [None] * (len(args) - len(result))
    return [
        share.expand(y.shape) if isinstance(a, torch.Tensor) else None
        for a, share in zip(args, result)
    ]
