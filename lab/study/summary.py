"""From records to what tables and figures show: shares, differences, and their intervals."""

from lab.study import intervals, records

PRECISIONS = ("float32", "bfloat16", "float16", "float8 weights", "float8")
CONVENTIONS = ("inclusive", "joint", "half", "straight_through", "control")


def select(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def by_seed(rows, value):
    return {row["seed"]: value(row) for row in rows}


# ---- Ties ----------------------------------------------------------------------------------------


def models(rows):
    return list(dict.fromkeys(row["model"] for row in rows))


def sites(rows):
    """Every (model, site), in the order of the models."""
    return [
        (model, site) for model in models(rows) for site in select(rows, model=model)[0]["elements"]
    ]


def share(row, site, what="at_bound", window=None):
    """The share of all elements that came to `site`, in the training or in one part of it."""
    numbers, elements = row[what][site], row["elements"][site]
    if window is not None:
        numbers, elements = numbers[window : window + 1], elements[window : window + 1]
    return sum(numbers) / sum(elements)


def outcome(rows, model, precision, gradient, key="loss"):
    """How far the runs of a convention end from those of `inclusive`, seed by seed."""
    ends = {
        which: by_seed(
            select(rows, model=model, precision=precision, gradient=which), lambda row: row[key]
        )
        for which in ("inclusive", gradient)
    }
    return intervals.paired(ends[gradient], ends["inclusive"])


def identical(rows, model, precision, gradient):
    """Whether the runs of a convention end with the weights of `inclusive`, in all seeds, to the bit."""
    prints = (
        by_seed(
            select(rows, model=model, precision=precision, gradient=which),
            lambda row: row["fingerprint"],
        )
        for which in ("inclusive", gradient)
    )
    return next(prints) == next(prints)


# ---- QAT -----------------------------------------------------------------------------------------


def at_bound(counts, which):
    """The share of the weights, or of the activations, that stand at a bound."""
    n, at, _ = counts[which]
    return at / n


def bounds_of_weights(weights):
    bits = int(weights.split(",")[0].removeprefix("int"))
    return f"{-(2 ** (bits - 1))}..{2 ** (bits - 1) - 1}"


def qat_difference(rows, weights, gradient, key):
    ends = [
        by_seed(select(rows, weights=weights, gradient=which), lambda row: row["after"][key])
        for which in (gradient, "inclusive")
    ]
    return intervals.paired(*ends)


def read(study):
    return list(records.read(study).values())
