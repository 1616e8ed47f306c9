"""The studies are carried out as they say, can be interrupted, and give what was committed."""

import pytest
import torch

from lab.study import __main__ as study
from lab.study import qat, relu0, results, ties
from lab.study.kinks import Kinks, clamp
from lab.study.precision import PRECISIONS


def committed(name, **settings):
    (row,) = results.select(results.read(name), **settings)
    return row


def same_training(measured, expected):
    """Another CPU rounds otherwise, and trainings part; they end alike all the same."""
    assert measured["loss"] == pytest.approx(expected["loss"], abs=0.05)
    assert measured["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)


# ---- The records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", study.SEEDS)
def test_every_run_is_committed_and_no_other(name):
    wanted = [*study.module(name).runs(range(study.SEEDS[name]))]
    rows = results.read(name)
    assert [{key: row[key] for key in run} for run, row in zip(wanted, rows)] == wanted
    assert len(rows) == len(wanted) and len({row["torch"] for row in rows}) == 1


def test_an_interrupted_study_goes_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(study, "SEEDS", {"relu0": 3})
    monkeypatch.setattr(relu0, "runs", lambda seeds: (dict(alpha=1, seed=s) for s in seeds))
    done = []

    def run(alpha, seed):
        if done == [0, 1]:
            done.append("interrupted")
            raise KeyboardInterrupt
        done.append(seed)
        return dict(loss=0.5)

    monkeypatch.setattr(relu0, "run", run)
    with pytest.raises(KeyboardInterrupt):
        study.carry_out("relu0")
    study.carry_out("relu0")
    assert done == [0, 1, "interrupted", 2]
    assert "3 runs, 1 of them to do" in capsys.readouterr().out
    assert [row["seed"] for row in results.read("relu0")] == [0, 1, 2]


def test_intervals_are_students():
    stats = pytest.importorskip("scipy.stats")
    for freedom, quantile in results.T975.items():
        assert quantile == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)
    values = [1.0, 2.0, 4.0, 4.5]
    _, expected = stats.t.interval(0.95, 3, loc=2.875, scale=stats.sem(values))
    found = results.interval(values)
    assert found.mean == 2.875 and found.excludes_zero
    assert found.mean + found.half == pytest.approx(expected, abs=1e-3)


# ---- Ties and ReLU'(0) ---------------------------------------------------------------------------


def test_bounds_are_counted():
    kinks = Kinks(clamp("joint"), PRECISIONS["float8"])
    x = torch.tensor([-1.0, 0.0, 0.001, 0.0001, 5.9, 6.0, 7.0, 6.1])
    kinks.window = 0
    y = kinks.relu6(x.requires_grad_())
    y.sum().backward()
    # 5.9 and 6.1 are 6 in E4M3, and 0.0001 is 0.
    assert kinks.counts["at_bound"] == {"relu6 at 0": [2], "relu6 at 6": [3]}
    assert kinks.counts["outside"] == {"relu6 at 0": [1], "relu6 at 6": [1]}
    assert x.grad.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    kinks.window = None
    kinks.relu6(x)
    assert kinks.counts["elements"] == {"relu6 at 0": [8], "relu6 at 6": [8]}


@pytest.mark.parametrize("formula, expected", [("alpha * g", [0, 20, 2]), ("alpha", [0, 10, 2])])
def test_relu_prime(formula, expected):
    kinks = Kinks(relu0.relu_prime(10, formula), PRECISIONS["float32"])
    x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (2 * kinks.relu(x, "relu")).sum().backward()
    assert x.grad.tolist() == expected


def test_a_convention_changes_bfloat16_and_not_float32():
    """The study's finding about the gradient, on the first batch of the convolutional net."""
    net = ties.build("conv", 0)
    x, label = net.batch(32)
    found = {p: ties.gradient_difference(net, PRECISIONS[p], x, label) for p in PRECISIONS}
    assert found["float32"] == 0
    assert 0.001 < found["bfloat16"] < found["float8"] < 0.5


@pytest.mark.slow
def test_ties_again():
    settings = dict(model="mlp", precision="float8", gradient="joint", seed=0)
    measured, expected = ties.run(**settings), committed("ties", **settings)
    same_training(measured, expected)
    for site, numbers in expected["at_bound"].items():
        assert sum(measured["at_bound"][site]) == pytest.approx(sum(numbers), rel=0.2)


# ---- QAT -----------------------------------------------------------------------------------------


@pytest.fixture
def torchao():
    return pytest.importorskip("torchao", reason="torchao is in clampgrad[study]")


def test_min_norm_is_joint_in_qat(torchao, monkeypatch):
    """They are equal to the bit, so the study trains with only one of them."""
    monkeypatch.setattr(qat, "FLOAT_STEPS", 10)
    qat.pretrained.cache_clear()
    ends = {how: qat.run("int2", how, 0, steps=10) for how in ("min_norm", "joint", "inclusive")}
    qat.pretrained.cache_clear()
    assert ends["min_norm"] == ends["joint"] != ends["inclusive"]
    (elements, at_bound, outside) = ends["joint"]["bounds"][0]["-2..1"]
    assert 0.1 < at_bound / elements < 0.4 and 0 < outside < at_bound


@pytest.mark.slow
def test_qat_again(torchao):
    settings = dict(weights="int2", gradient="joint", seed=0)
    measured, expected = qat.run(**settings), committed("qat", **settings)
    for key in ("excess_loss", "accuracy"):
        assert measured[key] == pytest.approx(expected[key], abs=0.02)
        assert measured["before"][key] == pytest.approx(expected["before"][key], abs=0.02)
    for now, then in zip(measured["bounds"], expected["bounds"]):
        assert now["-2..1"][1] == pytest.approx(then["-2..1"][1], rel=0.1)
