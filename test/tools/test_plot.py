"""Pictures are right: the curves and the paths of descent behind them, and the files."""

import json
from math import pi
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad._tools import plot as _plot
from clampgrad._tools.gallery import GALLERY


def test_curves():
    y, loss, gradient = _plot.curves(lambda x: clampgrad.clamp(x, -1, 1, gradient="with_grad"))
    assert torch.equal(y, _plot.X.clamp(-1, 1))
    index = [round(100 * x) + 200 for x in (-1.5, 0.0, 1.5)]
    torch.testing.assert_close(loss[index], torch.tensor([1.0, 1, 1]))
    torch.testing.assert_close(gradient[index], torch.tensor([-pi, pi, 0.0]))


# Which starts outside [-1, 1] ever move, left and right of it: what the notebook was about.
MOVES = dict.fromkeys(clampgrad.EXACT, (False, False)) | {
    "with_grad": (True, False),
    "restoring": (True, True),
    "straight_through": (True, True),
}


@pytest.mark.parametrize("convention", clampgrad.CONVENTIONS)
def test_descent(convention):
    path = _plot.descent(_plot.function_of(convention))
    starts = path[0]
    moved = path[-1] != starts
    left, right = MOVES[convention]
    assert moved[starts < -1].tolist() == [left] * 2
    assert moved[starts > 1].tolist() == [right] * 2
    assert moved[starts.abs() < 1].all()


@pytest.mark.parametrize("suffix, start", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot(tmp_path, suffix, start):
    path = tmp_path / f"picture.{suffix}"
    figure = clampgrad.plot("half", torch.tanh, loss=torch.square, path=path)
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[:2] == ["half", "tanh"]
    assert path.read_bytes().startswith(start)
    with pytest.raises(ValueError, match="typo"):
        clampgrad.plot("typo")


def test_gallery(tmp_path, command, monkeypatch):
    code, out, _ = command("gallery", tmp_path / "new", "--json")
    written = json.loads(out)["pictures"]
    assert code == 0 and len(written) == 2 * len(GALLERY)  # for light and for dark pages
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in written)
    monkeypatch.setattr("clampgrad._tools.gallery.gallery", lambda folder: written)
    assert command("gallery", tmp_path)[1].splitlines() == [f"wrote {path}" for path in written]
