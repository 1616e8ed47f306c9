"""Means over seeds with a 95% confidence interval by Student's t."""

import math
import statistics
from typing import NamedTuple

# The 97.5% quantile of Student's t, by degrees of freedom; a test compares them with scipy's.
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Interval(NamedTuple):
    mean: float
    half: float  # half of the interval's width
    n: int

    def times(self, factor):
        return Interval(factor * self.mean, factor * self.half, self.n)

    @property
    def excludes_zero(self):
        return abs(self.mean) > self.half


def of(values):
    values = list(values)
    n = len(values)
    half = T975[n - 1] * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(statistics.fmean(values), half, n)


def paired(values, baseline):
    """The interval of the differences, seed by seed; both arguments are dictionaries by seed."""
    return of(values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys()))
