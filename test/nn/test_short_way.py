"""Converted modules and activations call the kernel at once if the tensor is plain and only
autograd sees the call. Every other call goes through what looks at it first."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
from clampgrad import activations
from clampgrad.nn import forward, modules

pytestmark = [
    pytest.mark.compiled("the portable implementation has no short way"),
    pytest.mark.of_kernels("nor have compositions"),
]

MODULES = {
    "converted ReLU6": lambda: clampgrad.nn.convert(nn.ReLU6()),
    "converted Hardtanh": lambda: clampgrad.nn.convert(nn.Hardtanh(-2, 3, inplace=True)),
    "ReLU": clampgrad.nn.ReLU,
    "ReLU6": lambda: clampgrad.nn.ReLU6(inplace=True, gradient="half"),
    "Hardtanh": lambda: clampgrad.nn.Hardtanh(gradient="with_grad", maximize=True),
    "relu": lambda: clampgrad.relu,
    "hardtanh": lambda: clampgrad.hardtanh,
}


class LongWay(Exception):
    pass


@pytest.fixture
def long_way_raises(monkeypatch):
    def refuse(*args, **keywords):
        raise LongWay

    for place, name in (
        *((forward, name) for name in ("relu", "hardtanh")),
        *((modules, name) for name in ("relu", "relu6", "hardtanh")),
        (activations, "check_flag"),
    ):
        monkeypatch.setattr(place, name, refuse)


def plain():
    return torch.tensor([-9.0, -0.0, 1, 9], requires_grad=True) * 1


@pytest.mark.parametrize("name", MODULES)
def test_a_plain_tensor_goes_the_short_way(name, request):
    module = MODULES[name]()
    expected = module(plain())
    request.getfixturevalue("long_way_raises")
    for x in (plain(), plain().bfloat16(), plain()[::2]):
        assert module(x).dtype == x.dtype
    assert torch.equal(module(plain()), expected)
    with torch.no_grad():
        assert torch.equal(module(plain()), expected)


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize("name", MODULES)
def test_all_else_goes_the_long_way(name, request):
    module = MODULES[name]()
    request.getfixturevalue("long_way_raises")
    for x in (torch.ones(2, dtype=torch.int64), plain().as_subclass(Subclass), "text"):
        with pytest.raises(LongWay):
            module(x)
    with pytest.raises(LongWay):
        torch.func.vmap(module)(plain().detach())


def test_arguments_are_still_checked():
    for call, error in (
        (lambda: clampgrad.relu(plain(), "half"), TypeError),
        (lambda: clampgrad.relu(plain(), gradient="nothing"), ValueError),
        (lambda: clampgrad.relu6(plain(), gradient="half", maximize=True), ValueError),
        (lambda: clampgrad.hardtanh(plain(), 1, -1), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_who_replaces_a_function_of_torch_is_called(monkeypatch):
    module = clampgrad.nn.convert(nn.ReLU6())
    monkeypatch.setattr(F, "hardtanh", lambda *args, **keywords: "theirs")
    assert module(plain()) == "theirs"
