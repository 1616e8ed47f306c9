"""The records of the study are whole, and its intervals are Student's."""

from collections import defaultdict
from itertools import product

import pytest
import torch

from lab import study_tables as study


@pytest.mark.parametrize(
    "rows, keys, seeds, runs",
    [
        (study.TIES, ("model", "precision", "gradient"), 4, 240),
        (study.RELU0, ("precision", "alpha", "formula"), 4, 80),
        (study.QAT, ("weights", "gradient"), 5, 100),
    ],
)
def test_every_setting_has_every_seed_once(rows, keys, seeds, runs):
    assert len(rows) == runs
    found = [(tuple(row[key] for key in keys), row["seed"]) for row in rows]
    settings = dict.fromkeys(setting for setting, _ in found)
    assert sorted(found) == sorted(product(settings, range(seeds)))
    assert len(study.different(rows, "torch")) == 1


def test_shares_hardly_change_over_a_training():
    """Over all seeds together: by less than a factor of two, where every quarter has ten ties."""
    sums = defaultdict(int)
    for row in study.TIES:
        for site, ties in row["at_bound"].items():
            setting = row["model"], row["precision"], row["gradient"], site
            sums[setting] += torch.tensor([ties, row["elements"][site]])
    shares = {setting: t / n for setting, (t, n) in sums.items() if t.min() >= 10}
    assert len(shares) > 90
    assert [setting for setting, of in shares.items() if of.max() >= 2 * of.min()] == []


def test_intervals_are_students():
    stats = pytest.importorskip("scipy.stats")
    for freedom, quantile in study.T975.items():
        assert quantile == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)
    values = [1.0, 2.0, 4.0, 4.5]
    _, expected = stats.t.interval(0.95, 3, loc=2.875, scale=stats.sem(values))
    found = study.interval(values)
    assert found.mean == 2.875 and found.excludes_zero
    assert found.mean + found.half == pytest.approx(expected, abs=1e-3)
