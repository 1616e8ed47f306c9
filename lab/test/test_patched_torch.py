"""A torch whose gradients are not those of its release is said to be
patched, wherever we report on it."""

import json
from unittest import mock

import pytest
import torch

import clampgrad
from clampgrad._pin import installed as _installed
from clampgrad._pin.installed import NoConvention, convention_of_release, describe_patch


def test_a_stock_torch_is_not_patched():
    assert describe_patch() is None
    for name in clampgrad.EXACT:
        with clampgrad.pin(name):
            assert describe_patch() is None


@pytest.mark.parametrize("release, convention", [
    ("2.7.0a0+git1", "inclusive"),
    ("2.13.1+cpu", "inclusive"),
    ("2.14.0", "joint"),
    ("2.15.0+cu132", "joint"),
    ("2.16.0", "joint"),
])  # fmt: skip
def test_what_a_release_has(monkeypatch, release, convention):
    monkeypatch.setattr(torch, "__version__", release)
    assert convention_of_release() == convention


def test_a_patched_torch_is_named(monkeypatch, command):
    """One with the convention that this release does not have."""
    other = {"inclusive": "joint", "joint": "inclusive"}[convention_of_release()]
    monkeypatch.setattr(_installed, "detect_installed_convention", lambda: other)
    sentence = describe_patch()
    assert "is patched" in sentence and f"its gradients are those of {other}" in sentence
    assert sentence in command("info")[1]
    assert json.loads(command("info", "--json")[1])["patched"] == sentence
    assert "is patched" in command("survey")[1]
    with clampgrad.audit() as report:
        torch.clamp(torch.zeros(1, requires_grad=True), 0, 1).sum().backward()
    assert sentence in str(report) and report.as_data()["patched"] == sentence


def test_a_release_that_is_not_known_may_be_patched_or_not(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    monkeypatch.setattr(_installed, "detect_installed_convention", lambda: "half")
    assert "is patched, or newer than this clampgrad" in describe_patch()


def test_gradients_of_no_convention(monkeypatch):
    monkeypatch.setattr(
        _installed, "detect_installed_convention", mock.Mock(side_effect=NoConvention)
    )
    assert "those of no convention" in describe_patch()
    monkeypatch.setattr(
        _installed, "detect_installed_convention", mock.Mock(side_effect=RuntimeError("no memory"))
    )
    with pytest.raises(RuntimeError, match="no memory"):
        describe_patch()
