"""Pictures are right: the curves and the paths of descent behind them, and the files."""

import sys
from math import pi

import pytest
import torch

import clampgrad
from clampgrad._tools import plot as _plot


def test_curves():
    y, loss, gradient = _plot.curves(lambda x: clampgrad.clamp(x, -1, 1, gradient="with_grad"))
    assert torch.equal(y, _plot.X.clamp(-1, 1))
    index = [round(100 * x) + 200 for x in (-1.5, 0.0, 1.5)]
    torch.testing.assert_close(loss[index], torch.tensor([1.0, 1, 1]))
    torch.testing.assert_close(gradient[index], torch.tensor([-pi, pi, 0.0]))


# Which starts outside [-1, 1] ever move, left and right of it: what the notebook was about.
MOVES = {"with_grad": (True, False), "restoring": (True, True), "straight_through": (True, True)}


@pytest.mark.parametrize("convention", clampgrad.CONVENTIONS)
def test_descent(convention):
    path = _plot.descent(_plot.function_of(convention))
    left, right = MOVES.get(convention, (False, False))
    assert (path[-1] != path[0]).tolist() == [left] * 2 + [True] * 3 + [right] * 2


@pytest.mark.parametrize("suffix, start", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot(tmp_path, suffix, start):
    path = tmp_path / f"picture.{suffix}"
    figure = clampgrad.plot("half", torch.tanh, loss=torch.square, path=path)
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[:2] == ["half", "tanh"]
    assert path.read_bytes().startswith(start)
    with pytest.raises(ValueError, match="typo"):
        clampgrad.plot("typo")


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="matplotlib is missing: pip install matplotlib"):
        clampgrad.plot("half")
