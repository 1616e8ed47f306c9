"""Modules: torch.nn's own with a named gradient, and `convert`, which swaps them and swaps them back."""

import copy
import io

import pytest
import torch
from torch import nn

import clampgrad
from common import assert_same, eager, tied
from oracle import CONVENTIONS, gradient_of_x

TWINS = [
    (nn.ReLU, clampgrad.nn.ReLU, (), {"min": 0}),
    (nn.ReLU6, clampgrad.nn.ReLU6, (), {"min": 0, "max": 6}),
    (nn.Hardtanh, clampgrad.nn.Hardtanh, (-1, 0.5), {"min": -1, "max": 0.5}),
]
twins = pytest.mark.parametrize("theirs, ours, arguments, bounds", TWINS)


def saved_bytes(module, x):
    """What backward keeps, in bytes."""
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.untyped_storage().nbytes()) or t, lambda t: t
    ):
        module(x)
    return sum(sizes)


@twins
@pytest.mark.parametrize("inplace", [False, True])
def test_a_twin_is_the_same_module(theirs, ours, arguments, bounds, inplace):
    a, b = theirs(*arguments, inplace=inplace), ours(*arguments, inplace=inplace)
    assert isinstance(b, theirs)
    assert repr(a) == repr(b)
    assert a.state_dict() == b.state_dict()
    assert b.inplace is inplace
    for x in (tied(50), tied(50, dtype=torch.bfloat16), torch.arange(-2, 9)):
        assert_same(b(x.clone()), a(x.clone()))
        given = x.clone()
        assert (b(given) is given) == inplace
    # Where x is NaN torch's gradients differ among themselves: g or 0.
    x, g = tied(50, nan=False), tied(50, seed=1)
    x.mul_(6)
    expected = eager(lambda x: a(x.clone()), [x], g)
    assert_same(eager(lambda x: b(x.clone()), [x], g), expected)


@twins
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_gradient_is_the_one_named(theirs, ours, arguments, bounds, convention):
    module = ours(*arguments, gradient=convention)
    assert f"gradient='{convention}'" in repr(module) or convention == "min_norm"
    x, g = tied(50) * 6, tied(50, seed=1)
    (actual,) = eager(module, [x], g)
    assert_same(actual, gradient_of_x(convention, x, g, **bounds))


def test_clamp():
    with pytest.raises(ValueError, match="at least one"):
        clampgrad.nn.Clamp()
    for bad in ({"gradient": "typo"}, {"gradient": "half", "maximize": True}):
        for module in (clampgrad.nn.ReLU, clampgrad.nn.ReLU6, clampgrad.nn.Hardtanh):
            with pytest.raises(ValueError):
                module(**bad)
        with pytest.raises(ValueError):
            clampgrad.nn.Clamp(0, **bad)

    ascent = clampgrad.nn.Clamp(0, 1, gradient="with_grad", maximize=True)
    assert repr(ascent) == "Clamp(min=0, max=1, gradient='with_grad', maximize=True)"
    (gradient,) = eager(ascent, [torch.tensor([-1.0, 0.5, 2.0])], torch.ones(3))
    assert gradient.tolist() == [1, 1, 0]

    learned = clampgrad.nn.Clamp(torch.zeros(2), nn.Parameter(torch.ones(2)), inplace=True)
    assert list(learned.state_dict()) == ["max", "min"]
    assert repr(learned) == "Clamp(min=(2,), max=(2,), inplace=True)"
    learned(torch.tensor([2.0, 0.5])).sum().backward()
    assert learned.max.grad.tolist() == [1, 0]


class Net(nn.Module):
    """A module used twice, one in a list, one with a hook, one of a derived class."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU6(), nn.ReLU(inplace=True))
        self.again = self.body[1]
        self.derived = type("Mine", (nn.ReLU,), {})()
        self.head = nn.ModuleList([nn.Hardtanh(-2, 2)])

    def forward(self, x):
        return self.head[0](self.derived(self.again(self.body(x))))


def bias_gradient(model, call=None):
    model.zero_grad()
    (model if call is None else call)(torch.zeros(1, 4)).sum().backward()
    return model.body[0].bias.grad.tolist()


def at_the_bound():
    """Every activation is exactly 0: torch's gradient is 0 all the way."""
    model = Net()
    nn.init.zeros_(model.body[0].bias)
    model.derived = nn.Identity()
    return model


def test_convert_and_undo():
    model = Net()
    seen = []
    model.again.register_forward_hook(lambda *_: seen.append(1))
    before, state, modules = repr(model), copy.deepcopy(model.state_dict()), list(model.modules())
    changed = clampgrad.nn.convert(model, gradient="inclusive")
    assert list(changed) == ["body.1", "body.2", "head.0"]
    assert changed["body.1"] == "ReLU6 -> ReLU6(gradient='inclusive')"
    assert "body.2: ReLU -> ReLU(inplace=True, gradient='inclusive')" in repr(changed)
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert type(model.again) is clampgrad.nn.ReLU6 and type(model.derived).__name__ == "Mine"
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
    model(torch.zeros(1, 4))
    assert seen == [1, 1]  # hooks are kept

    again = clampgrad.nn.convert(model, gradient="half")
    assert again["head.0"].endswith("Hardtanh(min_val=-2, max_val=2, gradient='half')")
    again.undo()
    assert model.again.gradient == "inclusive"
    changed.undo()
    assert repr(model) == before
    assert type(model.again) is nn.ReLU6 and "gradient" not in vars(model.again)


def test_convert_of_one_module_and_of_none():
    relu = nn.ReLU()
    assert repr(clampgrad.nn.convert(relu, "half")) == "(model): ReLU -> ReLU(gradient='half')"
    assert not clampgrad.nn.convert(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="typo"):
        clampgrad.nn.convert(relu, "typo")
    assert relu.gradient == "half"


def test_convert_changes_the_gradient_and_nothing_else():
    model = at_the_bound()
    assert bias_gradient(model) == [0] * 4
    clampgrad.nn.convert(model)
    assert bias_gradient(model) == [0] * 4
    changed = clampgrad.nn.convert(model, gradient="inclusive")
    assert bias_gradient(model) == [1] * 4
    assert bias_gradient(copy.deepcopy(model)) == [1] * 4
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert bias_gradient(torch.load(file, weights_only=False)) == [1] * 4
    changed.undo()
    assert bias_gradient(model) == [0] * 4


def test_a_compiled_model_notices():
    torch._dynamo.reset()
    model = at_the_bound()
    compiled = torch.compile(model, backend="aot_eager")
    assert bias_gradient(model, compiled) == [0] * 4
    changed = clampgrad.nn.convert(model, gradient="inclusive")
    assert bias_gradient(model, compiled) == [1] * 4
    changed.undo()
    assert bias_gradient(model, compiled) == [0] * 4


def test_a_bit_an_element_is_saved():
    x = torch.randn(4096, requires_grad=True)
    assert saved_bytes(nn.ReLU6(), x) == 4 * 4096
    assert saved_bytes(clampgrad.nn.ReLU6(), x) == 4096 // 8
