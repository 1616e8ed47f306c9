"""Gradients held to what a patch claims: to the table of conventions, or to stock's."""

import torch

import oracle

# Everywhere {operator, kind, mode: rows}, where a row has the arguments of a point, g, and the gradients.


def differ(a, b):
    """Which rows are not the same; two NaNs are."""
    assert len(a) == len(b) > 0, "no points, so that nothing would be compared"
    return ~((a == b) | (a.isnan() & b.isnan())).all(1)


def changes(a, b):
    """Operators, kinds and modes with other gradients: in how many rows, of how many."""
    counts = {key: (differ(rows, b[key]).sum().item(), len(rows)) for key, rows in a.items()}
    return {key: count for key, count in counts.items() if count[0]}


def group(key):
    """The kernels that a mode reaches: each has forward mode of its own."""
    operator, kind, mode = key.split(", ")
    return "clamp" if "of clamp" in mode else operator, kind, "foreach" in mode


def selected(operator, args, shares):
    """The shares of forward mode on 2.15. Beside a NaN it is not the transpose: a comparison with a NaN is false,
    and the tangent is that of the argument that is then selected."""
    if operator in ("fmax", "fmin"):
        return shares
    chosen = torch.ones_like(args[0])
    if operator == "clamp":
        x, low, high = args
        beyond = torch.where(x < low, 1.0, torch.where(x > high, 2.0, 0.0))
        chosen = torch.where(low > high, 2.0, beyond)
    alone = torch.stack([(chosen == i).double() for i in range(len(args))])
    return torch.where(torch.stack(args).isnan().any(0), alone, shares)


def expected(convention, key, rows, forward="transpose"):
    """The rows as the table asks for them."""
    operator, kind, mode = key.split(", ")
    *args, g = rows[:, : len(oracle.TABLE["operators"][operator]["arguments"]) + 1].unbind(1)
    factors = oracle.factors(operator, kind, convention, args)
    if "forward mode" in mode and forward == "2.15" and kind == "tensors":
        factors = selected(operator, args, factors)
    return torch.stack([*args, g, *(oracle.scaled(g, f) for f in factors)], 1)


def held(found, stock, claim):
    """The convention of all that a patch covers, that of the claim or else the one that fits best; and where the
    gradients are others, one example for each key.

    What it does not cover has stock's gradients, and so have forward mode where the patch changed nothing (it is no
    transpose at a NaN), and lists of numbers, which the table does not have of all operators.
    """
    changed = set() if claim.unchanged else {group(key) for key in changes(stock, found)}

    def failures(convention):
        lines = []
        for key, rows in found.items():
            operator, kind, mode = key.split(", ")
            of_table = claim.covers(operator, kind)
            of_table &= kind in oracle.TABLE["operators"][operator]["rows"][0]
            of_table &= "forward mode" not in mode or group(key) in changed
            if not of_table and key not in stock:
                continue
            wanted = expected(convention, key, rows, claim.forward) if of_table else stock[key]
            for i in differ(rows, wanted).nonzero()[:1, 0]:
                whose = convention if of_table else "stock"
                got, right = ([f"{n:g}" for n in of[i].tolist()] for of in (rows, wanted))
                lines.append(f"{key}: arguments, g, gradients {got} is not {whose}'s {right}")
        return lines

    names = [claim.convention] if claim.convention else oracle.EXACT
    found_by_name = {name: failures(name) for name in names}
    return min(found_by_name.items(), key=lambda item: len(item[1]))
