"""The records of the study are whole, and its intervals are Student's."""

from itertools import product

import pytest

from lab import study_tables as study


@pytest.mark.parametrize("rows, keys, seeds", [
    (study.TIES, ("model", "precision", "gradient"), 4),
    (study.RELU0, ("precision", "alpha", "formula"), 4),
    (study.QAT, ("weights", "gradient"), 5),
])  # fmt: skip
def test_every_setting_has_every_seed_once(rows, keys, seeds):
    found = [(tuple(row[key] for key in keys), row["seed"]) for row in rows]
    settings = dict.fromkeys(setting for setting, _ in found)
    assert sorted(found) == sorted(product(settings, range(seeds)))
    assert len(study.different(rows, "torch")) == 1


def test_intervals_are_students():
    stats = pytest.importorskip("scipy.stats")
    for freedom, quantile in study.T975.items():
        assert quantile == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)
    values = [1.0, 2.0, 4.0, 4.5]
    _, expected = stats.t.interval(0.95, 3, loc=2.875, scale=stats.sem(values))
    found = study.interval(values)
    assert found.mean == 2.875 and found.excludes_zero
    assert found.mean + found.half == pytest.approx(expected, abs=1e-3)
