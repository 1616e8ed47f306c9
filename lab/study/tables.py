"""The tables of docs/study.md and docs/howto/, from the records; lab.fill_tables puts them there.

python -m lab.study.tables prints them all.
"""

import json
import math

from lab.study import intervals, records, summary
from lab.study.summary import PRECISIONS, by_seed, select
from records import markdown

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


def study_ties():
    rows = []
    for model, site in summary.sites(TIES):
        wide = select(TIES, model=model, precision="float32", gradient="inclusive")
        outside = intervals.of(summary.share(row, site, "outside") for row in wide)
        cells = (share(model, precision, site) for precision in PRECISIONS)
        rows.append([model, site, f"{outside.mean:.2%}", *cells])
    heading = ["model", "site", "outside, float32", *PRECISIONS]
    note = (
        "The share of all elements of a training that are exactly at the bound, or at either of two, under "
        "`inclusive`. Where none was met, the brackets have the most that 95% confidence leaves."
    )
    return f"{markdown(heading, *rows, left=2)}\n\n{note} {of(TIES)}"


def study_gradient():
    rows = []
    for model in summary.models(TIES):
        cells = []
        for precision in PRECISIONS:
            runs = select(TIES, model=model, precision=precision, gradient="inclusive")
            means = [
                100 * sum(r["gradient_difference"]) / len(r["gradient_difference"]) for r in runs
            ]
            largest = 100 * max(max(run["gradient_difference"]) for run in runs)
            cells.append(
                f"{plus_minus(intervals.of(means), 2)} ({largest:.2g})" if largest else "0"
            )
        rows.append([model, *cells])
    note = (
        "The norm of the difference between the parameters' gradients under `inclusive` and `joint`, "
        "in percent of the former's norm: the mean over the training ± its interval, and in brackets the largest."
    )
    return f"{markdown(['model', *PRECISIONS], *rows, left=1)}\n\n{note} {of(TIES)}"


def study_outcome():
    rows = []
    for model in summary.models(TIES):
        for precision in PRECISIONS:
            runs = select(TIES, model=model, precision=precision, gradient="inclusive")
            cells = (
                beside_inclusive(model, precision, gradient, *unit)
                for unit in (("loss", 1, 4), ("accuracy", 100, 2))
                for gradient in ("joint", "control")
            )
            accuracy = intervals.of(100 * run["accuracy"] for run in runs)
            rows.append([model, precision, f"{accuracy.mean:.1f}", *cells])
    heading = [
        *("model", "precision", "accuracy, %"),
        *("loss, `joint`", "loss, control", "accuracy, `joint`", "accuracy, control"),
    ]
    note = (
        "The accuracy is that under `inclusive`; the other columns are differences from `inclusive` at the end of "
        "the training, seed by seed. The control is `inclusive` from weights whose first layer is moved by "
        "one unit in the last place of float32. `same` means that the weights at the end are equal bit for bit, in "
        "all seeds. Where a difference is bold, its interval excludes 0."
    )
    return f"{markdown(heading, *rows, left=2)}\n\n{note} {of(TIES)}"


def beside_inclusive(model, precision, gradient, key, scale, digits):
    if summary.identical(TIES, model, precision, gradient):
        return "same"
    found = summary.outcome(TIES, model, precision, gradient, key)
    return difference(intervals.Interval(scale * found.mean, scale * found.half, found.n), digits)


def study_relu0():
    rows = []
    for precision in dict.fromkeys(row["precision"] for row in RELU0):
        zero = select(RELU0, precision=precision, alpha=0)
        share = intervals.of(row["at_bound"] / row["elements"] for row in zero).mean
        for alpha in dict.fromkeys(row["alpha"] for row in RELU0 if row["alpha"]):
            cells = []
            for formula in ("alpha * g", "alpha"):
                runs = select(RELU0, precision=precision, alpha=alpha, formula=formula)
                ends = by_seed(runs, lambda row: 100 * row["accuracy"])
                base = by_seed(zero, lambda row: 100 * row["accuracy"])
                prints = by_seed(zero, lambda row: row["fingerprint"])
                same = sum(row["fingerprint"] == prints[row["seed"]] for row in runs)
                cells.append(
                    "same weights"
                    if same == len(runs)
                    else f"{difference(intervals.paired(ends, base), 2)}"
                )
            accuracy = intervals.of(100 * row["accuracy"] for row in zero).mean
            rows.append(
                [precision, power(share) if share else "0", f"{accuracy:.1f}", alpha, *cells]
            )
    heading = [
        *("precision", "share at 0", "accuracy at alpha = 0, %", "alpha"),
        *("corrected, alpha * g", "as published, alpha"),
    ]
    note = (
        "The last two columns are percentage points of accuracy relative to alpha = 0, seed by seed. `same weights` "
        "means bit for bit those of alpha = 0, in all seeds. Where a number is bold, its interval excludes 0."
    )
    return f"{markdown(heading, *rows, left=1)}\n\n{note} {of(RELU0)}"


# ---- docs/howto/qat.md ---------------------------------------------------------------------------


def qat_outcome():
    rows = []
    for weights in dict.fromkeys(row["weights"] for row in QAT if row["weights"] != "float32"):
        for gradient in summary.CONVENTIONS:
            runs = select(QAT, weights=weights, gradient=gradient)
            if not runs:
                continue
            before, after = (
                intervals.of(row[when]["excess_loss"] for row in runs)
                for when in ("before", "after")
            )
            accuracy = intervals.of(100 * row["after"]["accuracy"] for row in runs)
            cells = ["", ""]
            if gradient != "inclusive":
                loss, right = (
                    summary.qat_difference(QAT, weights, gradient, key)
                    for key in ("excess_loss", "accuracy")
                )
                right = intervals.Interval(100 * right.mean, 100 * right.half, right.n)
                cells = [difference(loss, 4), difference(right, 2)]
            shown = gradient if gradient == "control" else f"`{gradient}`"
            numbers = [f"{before.mean:.3f}", plus_minus(after, 4), cells[0]]
            rows.append([weights, shown, *numbers, plus_minus(accuracy, 2), cells[1]])
    heading = [
        *("weights", "gradient", "loss before", "loss after", "vs. `inclusive`"),
        *("accuracy, %", "vs. `inclusive`"),
    ]
    plain = intervals.of(r["after"]["excess_loss"] for r in select(QAT, weights="float32"))
    note = (
        "The loss is in nats per symbol above the best possible; `loss before` is that of the quantised model before "
        f"training continues, for {QAT[0]['steps']} steps. The same steps in float32 end at {plus_minus(plain, 4)}. "
        "Differences are taken seed by seed, and bold where the interval excludes 0. The control is `inclusive` "
        "from weights moved by one unit in the last place."
    )
    return f"{markdown(heading, *rows, left=2)}\n\n{note} {of(QAT)}"


def qat_bounds():
    rows = []
    for weights in dict.fromkeys(row["weights"] for row in QAT if row["weights"] != "float32"):
        bounds = summary.bounds_of_weights(weights)
        cells = []
        for gradient, when in (("inclusive", 0), ("inclusive", -1), ("joint", -1)):
            runs = select(QAT, weights=weights, gradient=gradient)
            found = [100 * summary.at_bound(run["bounds"][when], bounds) for run in runs]
            cells.append(plus_minus(intervals.of(found), 2))
        rows.append([weights, *cells])
    heading = ["weights", "start, %", "end, `inclusive`, %", "end, `joint`, %"]
    note = "The weights that are exactly at a bound. Those at the end are counted after nine tenths of the steps."
    return f"{markdown(heading, *rows, left=1)}\n\n{note} {of(QAT)}"


# ---- docs/howto/swiglu.md ------------------------------------------------------------------------


def swiglu():
    rows = []
    for name, found in SWIGLU["ways"].items():
        kernels = found.get("kernels")
        cells = [f"{found['saved_bytes'] / SWIGLU['elements']:.3g}", kernels or ""]
        rows.append([name, *cells])
    note = (
        f"The bytes that the graph keeps for a pair of a gate and an up in {SWIGLU['dtype']}, and the kernels that "
        f"Inductor makes for forward and backward together. torch {SWIGLU['torch']}, CPU."
    )
    return f"{markdown(['', 'saved bytes', 'kernels'], *rows, left=1)}\n\n{note}"


# ---- docs/howto/nan_guards.md --------------------------------------------------------------------


def guards():
    rows = []
    for row in GUARDS["guards"]:
        gradients = (shown(row["gradient"][how]) for how in ("inclusive", "min_norm"))
        numbers = [f"{row['bound']:.7g}", shown(row["value"]), *gradients]
        rows.append([f"`{row['guard']}`", f"{row['at']:g}", row["dtype"], *numbers])
    heading = ["guard", "at", "dtype", "the bound is", "value"]
    return markdown([*heading, "gradient, `inclusive`", "gradient, `min_norm`"], *rows, left=3)


def shown(number):
    """Bold where it is not finite."""
    return f"{float(number):.4g}" if math.isfinite(float(number)) else f"**{number}**"


TABLES = {
    table.__name__: table
    for table in (
        study_ties,
        study_gradient,
        study_outcome,
        study_relu0,
        qat_outcome,
        qat_bounds,
        swiglu,
        guards,
    )
}

if __name__ == "__main__":
    for name, table in TABLES.items():
        print(f"{name}\n\n{table()}\n")
