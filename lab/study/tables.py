"""The tables of docs/study.md and docs/howto/, from the records; lab.fill_tables puts them there.

python -m lab.study.tables prints them all.
"""

import json
import math
import statistics

from lab.study import intervals, records, summary
from lab.study.summary import PRECISIONS, by_seed, select
from records import TABLES, table

TIES, RELU0, QAT = map(summary.read, ("ties", "relu0", "qat"))
SWIGLU, GUARDS = (
    json.loads((records.FOLDER / f"{name}.json").read_text()) for name in ("swiglu", "guards")
)


def power(value):
    """1.2e-05 as 1.2e-5."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def plus_minus(interval, digits):
    return f"{interval.mean:.{digits}f} ± {interval.half:.{digits}f}"


def difference(interval, digits):
    """Bold where the interval excludes 0."""
    text = f"{interval.mean:+.{digits}f} ± {interval.half:.{digits}f}"
    return f"**{text}**" if interval.excludes_zero else text


def of(rows):
    seeds = len({row["seed"] for row in rows})
    (release,) = {row["torch"] for row in rows}
    return f"{seeds} seeds, 95% intervals by Student's t over them; torch {release}."


# ---- docs/study.md -------------------------------------------------------------------------------


def share(model, precision, site):
    rows = select(TIES, model=model, precision=precision, gradient="inclusive")
    found = intervals.of(summary.share(row, site) for row in rows)
    if found.mean == 0:
        # None among n: with 95% confidence the share is below 3 / n.
        return f"0 (< {power(3 / sum(sum(row['elements'][site]) for row in rows))})"
    return f"{power(found.mean)} ± {power(found.half)}"


@table(left=2)
def study_ties():
    yield "model", "site", "outside, float32", *PRECISIONS
    for model, site in summary.sites(TIES):
        wide = select(TIES, model=model, precision="float32", gradient="inclusive")
        outside = intervals.of(summary.share(row, site, "outside") for row in wide)
        shares = (share(model, precision, site) for precision in PRECISIONS)
        yield model, site, f"{outside.mean:.2%}", *shares
    yield (
        "The share of all elements of a training that are exactly at the bound, or at either of two, under "
        "`inclusive`. Where none was met, the brackets have the most that 95% confidence leaves. "
        + of(TIES)
    )


@table(left=1)
def study_gradient():
    yield "model", *PRECISIONS
    for model in summary.models(TIES):
        cells = []
        for precision in PRECISIONS:
            runs = select(TIES, model=model, precision=precision, gradient="inclusive")
            found = [[100 * d for d in run["gradient_difference"]] for run in runs]
            mean, largest = intervals.of(map(statistics.fmean, found)), max(map(max, found))
            cells.append(f"{plus_minus(mean, 2)} ({largest:.2g})" if largest else "0")
        yield model, *cells
    yield (
        "The norm of the difference between the parameters' gradients under `inclusive` and `joint`, "
        "in percent of the former's norm: the mean over the training ± its interval, and in brackets the largest. "
        + of(TIES)
    )


@table(left=2)
def study_outcome():
    yield (
        *("model", "precision", "accuracy, %"),
        *("loss, `joint`", "loss, control", "accuracy, `joint`", "accuracy, control"),
    )
    for model in summary.models(TIES):
        for precision in PRECISIONS:
            runs = select(TIES, model=model, precision=precision, gradient="inclusive")
            cells = (
                beside_inclusive(model, precision, gradient, *unit)
                for unit in (("loss", 1, 4), ("accuracy", 100, 2))
                for gradient in ("joint", "control")
            )
            accuracy = intervals.of(100 * run["accuracy"] for run in runs)
            yield model, precision, f"{accuracy.mean:.1f}", *cells
    yield (
        "The accuracy is that under `inclusive`; the other columns are differences from `inclusive` at the end of "
        "the training, seed by seed. The control is `inclusive` from weights whose first layer is moved by "
        "one unit in the last place of float32. `same` means that the weights at the end are equal bit for bit, in "
        f"all seeds. Where a difference is bold, its interval excludes 0. {of(TIES)}"
    )


def beside_inclusive(model, precision, gradient, key, scale, digits):
    if summary.identical(TIES, model, precision, gradient):
        return "same"
    return difference(summary.outcome(TIES, model, precision, gradient, key).times(scale), digits)


@table(left=1)
def study_relu0():
    yield (
        *("precision", "share at 0", "accuracy at alpha = 0, %", "alpha"),
        *("corrected, alpha * g", "as published, alpha"),
    )
    for precision in dict.fromkeys(row["precision"] for row in RELU0):
        zero = select(RELU0, precision=precision, alpha=0)
        share = intervals.of(row["at_bound"] / row["elements"] for row in zero).mean
        base = by_seed(zero, lambda row: 100 * row["accuracy"])
        prints = by_seed(zero, lambda row: row["fingerprint"])
        for alpha in dict.fromkeys(row["alpha"] for row in RELU0 if row["alpha"]):
            cells = []
            for formula in ("alpha * g", "alpha"):
                runs = select(RELU0, precision=precision, alpha=alpha, formula=formula)
                ends = by_seed(runs, lambda row: 100 * row["accuracy"])
                same = by_seed(runs, lambda row: row["fingerprint"]) == prints
                change = difference(intervals.paired(ends, base), 2)
                cells.append("same weights" if same else change)
            accuracy = intervals.of(base.values()).mean
            yield precision, power(share) if share else "0", f"{accuracy:.1f}", alpha, *cells
    yield (
        "The last two columns are percentage points of accuracy relative to alpha = 0, seed by seed. `same weights` "
        f"means bit for bit those of alpha = 0, in all seeds. Where a number is bold, its interval excludes 0. {of(RELU0)}"
    )


# ---- docs/howto/qat.md ---------------------------------------------------------------------------


FAKE = dict.fromkeys(row["weights"] for row in QAT if row["weights"] != "float32")


@table(left=2)
def qat_outcome():
    yield (
        *("weights", "gradient", "loss before", "loss after", "vs. `inclusive`"),
        *("accuracy, %", "vs. `inclusive`"),
    )
    for weights in FAKE:
        for gradient in summary.CONVENTIONS:
            if not (runs := select(QAT, weights=weights, gradient=gradient)):
                continue
            before, after = (
                intervals.of(row[when]["excess_loss"] for row in runs)
                for when in ("before", "after")
            )
            accuracy = intervals.of(100 * row["after"]["accuracy"] for row in runs)
            cells = ["", ""]
            if gradient != "inclusive":
                loss = summary.qat_difference(QAT, weights, gradient, "excess_loss")
                right = summary.qat_difference(QAT, weights, gradient, "accuracy").times(100)
                cells = [difference(loss, 4), difference(right, 2)]
            name = gradient if gradient == "control" else f"`{gradient}`"
            numbers = [f"{before.mean:.3f}", plus_minus(after, 4), cells[0]]
            yield weights, name, *numbers, plus_minus(accuracy, 2), cells[1]
    plain = intervals.of(r["after"]["excess_loss"] for r in select(QAT, weights="float32"))
    yield (
        "The loss is in nats per symbol above the best possible; `loss before` is that of the quantised model before "
        f"training continues, for {QAT[0]['steps']} steps. The same steps in float32 end at {plus_minus(plain, 4)}. "
        "Differences are taken seed by seed, and bold where the interval excludes 0. The control is `inclusive` "
        f"from weights moved by one unit in the last place. {of(QAT)}"
    )


@table(left=1)
def qat_bounds():
    yield "weights", "start, %", "end, `inclusive`, %", "end, `joint`, %"
    for weights in FAKE:
        bounds = summary.bounds_of_weights(weights)
        cells = []
        for gradient, when in (("inclusive", 0), ("inclusive", -1), ("joint", -1)):
            runs = select(QAT, weights=weights, gradient=gradient)
            found = [100 * summary.at_bound(run["bounds"][when], bounds) for run in runs]
            cells.append(plus_minus(intervals.of(found), 2))
        yield weights, *cells
    yield (
        "The weights that are exactly at a bound. Those at the end are counted after nine tenths of the steps. "
        + of(QAT)
    )


# ---- docs/howto/ ---------------------------------------------------------------------------------


@table(left=1)
def swiglu():
    yield "", "saved bytes", "kernels"
    for name, found in SWIGLU["ways"].items():
        saved = found["saved_bytes"] / SWIGLU["elements"]
        yield name, f"{saved:.3g}", found.get("kernels", "")
    yield (
        f"The bytes that the graph keeps for a pair of a gate and an up in {SWIGLU['dtype']}, and the kernels that "
        f"Inductor makes for forward and backward together. torch {SWIGLU['torch']}, CPU."
    )


@table(left=3)
def guards():
    heading = ["guard", "at", "dtype", "the bound is", "value"]
    yield *heading, "gradient, `inclusive`", "gradient, `min_norm`"
    for row in GUARDS["guards"]:
        gradients = (shown(row["gradient"][how]) for how in ("inclusive", "min_norm"))
        numbers = [f"{row['bound']:.7g}", shown(row["value"]), *gradients]
        yield f"`{row['guard']}`", f"{row['at']:g}", row["dtype"], *numbers


def shown(number):
    """Bold where it is not finite."""
    return f"{float(number):.4g}" if math.isfinite(float(number)) else f"**{number}**"


if __name__ == "__main__":
    for name, of_records in TABLES.items():
        print(f"{name}\n\n{of_records()}\n")
