"""The records of the studies, one row per run, and the differences and intervals for tables."""

import math
import os
import statistics
from pathlib import Path
from typing import NamedTuple

import records

# The committed records, or those of a study of one's own: `make study` sets it.
FOLDER = Path(os.environ.get("STUDY_RESULTS") or records.FOLDER / "study")


def path(study):
    return FOLDER / f"{study}.jsonl"


def read(study):
    """All runs of a study."""
    return records.read(path(study))["rows"] if path(study).exists() else []


def select(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def by_seed(rows, key):
    return {row["seed"]: row[key] for row in rows}


def different(rows, key):
    """The values that the rows have under a key, in their order."""
    return list(dict.fromkeys(row[key] for row in rows))


# ---- What is at a bound --------------------------------------------------------------------------


def sites(rows):
    """Every (model, site), in the order of the models."""
    firsts = [select(rows, model=model)[0] for model in different(rows, "model")]
    return [(row["model"], site) for row in firsts for site in row["elements"]]


def share(row, site, what="at_bound"):
    """The share of all elements that came to `site` in the training."""
    return sum(row[what][site]) / sum(row["elements"][site])


def weights_at_bound(row, part):
    """The percentage of the quantised weights at the start of a part of the training."""
    bits = int(row["weights"].split(",")[0].removeprefix("int"))
    n, at, _ = row["bounds"][part][f"{-(2 ** (bits - 1))}..{2 ** (bits - 1) - 1}"]
    return 100 * (at / n)


# ---- Means over seeds with a 95% confidence interval by Student's t ------------------------------

# The 97.5% quantile, by degrees of freedom; a test compares them with scipy's.
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Interval(NamedTuple):
    mean: float
    half: float  # half of the interval's width

    @property
    def excludes_zero(self):
        return abs(self.mean) > self.half


def interval(values, scale=1):
    values = [scale * value for value in values]
    n = len(values)
    half = T975[n - 1] * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(statistics.fmean(values), half)


def change(rows, baseline, key, scale=1):
    """The interval of the differences, seed by seed."""
    starts = by_seed(baseline, key)
    return interval((row[key] - starts[row["seed"]] for row in rows), scale)


def identical(rows, baseline):
    """Whether runs end with the same weights in all seeds, to the bit."""
    return by_seed(rows, "fingerprint") == by_seed(baseline, "fingerprint")
