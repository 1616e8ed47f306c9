"""The tables of docs/study.md and docs/howto/qat.md, from records/study, one row per
run; and that of NaN guards."""

import math
import statistics
from typing import NamedTuple

import torch

import clampgrad
import records
from records import code, table


def read(study):
    return records.read(records.FOLDER / f"study/{study}.jsonl")["rows"]


def select(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def by_seed(rows, key):
    return {row["seed"]: row[key] for row in rows}


def different(rows, key):
    """The values that the rows have under a key, in their order."""
    return list(dict.fromkeys(row[key] for row in rows))


TIES, RELU0, QAT = map(read, ("ties", "relu0", "qat"))
PRECISIONS = different(TIES, "precision")


# ---- Means over seeds with a 95% confidence interval by Student's t ------------------------------

# The 97.5% quantile, by degrees of freedom; a test compares them with scipy's.
T975 = {3: 3.182, 4: 2.776}


class Interval(NamedTuple):
    mean: float
    half: float  # half of the interval's width

    @property
    def excludes_zero(self):
        return abs(self.mean) > self.half


def interval(values, scale=1):
    values = [scale * value for value in values]
    n = len(values)
    half = T975[n - 1] * statistics.stdev(values) / math.sqrt(n)
    return Interval(statistics.fmean(values), half)


def change(rows, baseline, key, scale=1):
    """The interval of the differences, seed by seed."""
    starts = by_seed(baseline, key)
    return interval((row[key] - starts[row["seed"]] for row in rows), scale)


def identical(rows, baseline):
    """Whether runs end with the same weights in all seeds, to the bit."""
    return by_seed(rows, "fingerprint") == by_seed(baseline, "fingerprint")


def power(value):
    """1.2e-05 as 1.2e-5."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def plus_minus(found, digits):
    return f"{found.mean:.{digits}f} ± {found.half:.{digits}f}"


def difference(found, digits):
    """Bold where the interval excludes 0."""
    text = f"{found.mean:+.{digits}f} ± {found.half:.{digits}f}"
    return f"**{text}**" if found.excludes_zero else text


def note(rows, text):
    (release,) = different(rows, "torch")
    seeds = len(different(rows, "seed"))
    return f"{text} {seeds} seeds, 95% intervals by Student's t over them; torch {release}."


# ---- docs/study.md -------------------------------------------------------------------------------


def share(row, site, what="at_bound"):
    """The share of all elements that came to `site` in the training."""
    return sum(row[what][site]) / sum(row["elements"][site])


def shown_share(rows, site):
    found = interval(share(row, site) for row in rows)
    if found.mean == 0:
        # None among n: with 95% confidence the share is below 3 / n.
        return f"0 (< {power(3 / sum(sum(row['elements'][site]) for row in rows))})"
    return f"{power(found.mean)} ± {power(found.half)}"


@table(left=2)
def study_ties():
    yield "model", "site", "outside, float32", *PRECISIONS
    for model in different(TIES, "model"):
        of = [select(TIES, model=model, precision=p, gradient="inclusive") for p in PRECISIONS]
        for site in of[0][0]["elements"]:
            outside = interval(share(row, site, "outside") for row in of[0])
            yield model, site, f"{outside.mean:.2%}", *(shown_share(rows, site) for rows in of)
    yield note(
        TIES,
        "The share of all elements of a training that are exactly at the bound, or at either of "
        "two, under `inclusive`. Where none was met, the brackets have the most that 95% "
        "confidence leaves.",
    )


@table(left=1)
def study_gradient():
    yield "model", *PRECISIONS
    for model in different(TIES, "model"):
        cells = []
        for precision in PRECISIONS:
            runs = select(TIES, model=model, precision=precision, gradient="inclusive")
            found = [[100 * d for d in run["gradient_difference"]] for run in runs]
            mean, largest = interval(map(statistics.fmean, found)), max(map(max, found))
            cells.append(f"{plus_minus(mean, 2)} ({largest:.2g})" if largest else "0")
        yield model, *cells
    yield note(
        TIES,
        "The norm of the difference between the parameters' gradients under `inclusive` and "
        "`joint`, in percent of the former's norm: the mean over the training ± its interval, "
        "and in brackets the largest.",
    )


@table(left=2)
def study_outcome():
    columns = ("loss, `joint`", "loss, control", "accuracy, `joint`", "accuracy, control")
    yield "model", "precision", "accuracy, %", *columns
    for model in different(TIES, "model"):
        for precision in PRECISIONS:
            here = select(TIES, model=model, precision=precision)
            base = select(here, gradient="inclusive")
            cells = []
            for key, scale, digits in (("loss", 1, 4), ("accuracy", 100, 2)):
                for gradient in ("joint", "control"):
                    runs = select(here, gradient=gradient)
                    found = difference(change(runs, base, key, scale), digits)
                    cells.append("same" if identical(runs, base) else found)
            accuracy = interval((run["accuracy"] for run in base), 100)
            yield model, precision, f"{accuracy.mean:.1f}", *cells
    yield note(
        TIES,
        "The accuracy is that under `inclusive`; the other columns are differences from "
        "`inclusive` at the end of the training, seed by seed. The control is `inclusive` from "
        "weights whose first layer is moved by one unit in the last place of float32. `same` "
        "means that the weights at the end are equal bit for bit, in all seeds. Where a "
        "difference is bold, its interval excludes 0.",
    )


@table(left=1)
def study_relu0():
    columns = ("alpha", "corrected, alpha * g", "as published, alpha")
    yield "precision", "share at 0", "accuracy at alpha = 0, %", *columns
    for precision in different(RELU0, "precision"):
        base = select(RELU0, precision=precision, alpha=0)
        at_zero = interval(row["at_bound"] / row["elements"] for row in base).mean
        accuracy = interval((row["accuracy"] for row in base), 100).mean
        for alpha in filter(None, different(RELU0, "alpha")):
            cells = []
            for formula in ("alpha * g", "alpha"):
                runs = select(RELU0, precision=precision, alpha=alpha, formula=formula)
                found = difference(change(runs, base, "accuracy", 100), 2)
                cells.append("same weights" if identical(runs, base) else found)
            yield precision, power(at_zero) if at_zero else "0", f"{accuracy:.1f}", alpha, *cells
    yield note(
        RELU0,
        "The last two columns are percentage points of accuracy relative to alpha = 0, seed by "
        "seed. `same weights` means bit for bit those of alpha = 0, in all seeds. Where a number "
        "is bold, its interval excludes 0.",
    )


# ---- docs/howto/ ---------------------------------------------------------------------------------

FAKE = [weights for weights in different(QAT, "weights") if weights != "float32"]


@table(left=2)
def qat_outcome():
    columns = ("loss before", "loss after", "vs. `inclusive`", "accuracy, %", "vs. `inclusive`")
    yield "weights", "gradient", *columns
    for weights in FAKE:
        here = select(QAT, weights=weights)
        base = select(here, gradient="inclusive")
        for gradient in different(here, "gradient"):
            runs = select(here, gradient=gradient)
            before = interval(row["before"]["excess_loss"] for row in runs)
            after = interval(row["excess_loss"] for row in runs)
            accuracy = interval((row["accuracy"] for row in runs), 100)
            loss = difference(change(runs, base, "excess_loss"), 4)
            right = difference(change(runs, base, "accuracy", 100), 2)
            if runs == base:
                loss = right = ""
            name = gradient if gradient == "control" else code(gradient)
            numbers = [f"{before.mean:.3f}", plus_minus(after, 4), loss]
            yield weights, name, *numbers, plus_minus(accuracy, 2), right
    plain = interval(row["excess_loss"] for row in select(QAT, weights="float32"))
    yield note(
        QAT,
        "The loss is in nats per symbol above the best possible; `loss before` is that of the "
        f"quantised model before training continues, for {QAT[0]['steps']} steps. The same steps "
        f"in float32 end at {plus_minus(plain, 4)}. Differences are taken seed by seed, and bold "
        "where the interval excludes 0. The control is `inclusive` from weights moved by one "
        "unit in the last place.",
    )


def weights_at_bound(row, part):
    """The percentage of the quantised weights at the start of a part of the training."""
    bits = int(row["weights"].split(",")[0].removeprefix("int"))
    n, at, _ = row["bounds"][part][f"{-(2 ** (bits - 1))}..{2 ** (bits - 1) - 1}"]
    return 100 * (at / n)


@table(left=1)
def qat_bounds():
    yield "weights", "start, %", "end, `inclusive`, %", "end, `joint`, %"
    for weights in FAKE:
        cells = []
        for gradient, part in (("inclusive", 0), ("inclusive", -1), ("joint", -1)):
            runs = select(QAT, weights=weights, gradient=gradient)
            found = interval(weights_at_bound(run, part) for run in runs)
            cells.append(plus_minus(found, 2))
        yield weights, *cells
    yield note(
        QAT,
        "The weights that are exactly at a bound. Those at the end are counted after nine tenths "
        "of the steps.",
    )


# Guard, the bound in it, what stands behind it, and the argument at which it is needed.
GUARDS = (
    ("log(1 - clamp(p, max=1 - 1e-6))", 1 - 1e-6, lambda c: torch.log(1 - c), "max", 1.0),
    ("acos(clamp(c, max=1 - 1e-6))", 1 - 1e-6, torch.acos, "max", 1.0),
    ("sqrt(clamp(v, min=1e-8))", 1e-8, torch.sqrt, "min", 0.0),
    ("1 / clamp(n, min=1e-8)", 1e-8, torch.reciprocal, "min", 0.0),
)


@table(left=3)
def guards():
    """Guards against NaN, where their bound vanishes in a dtype of few
    bits: evaluated here, no record."""
    heading = ["guard", "at", "dtype", "the bound is", "value"]
    yield *heading, "gradient, `inclusive`", "gradient, `min_norm`"
    for guard, written, function, side, at in GUARDS:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            bound = f"{torch.tensor(written, dtype=dtype).item():.7g}"
            x = torch.tensor(at, dtype=dtype, requires_grad=True)
            slopes = []
            for gradient in ("inclusive", "min_norm"):
                y = function(clampgrad.clamp(x, **{side: written}, gradient=gradient))
                slopes += torch.autograd.grad(y, x)
            found = (bold_unless_finite(number.item()) for number in (y, *slopes))
            name = str(dtype).removeprefix("torch.")
            yield code(guard), f"{at:g}", name, bound, *found


def bold_unless_finite(number):
    return f"{number:.4g}" if math.isfinite(number) else f"**{number}**"
