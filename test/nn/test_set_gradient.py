"""set_gradient: modules with another gradient, whose class says so, and which is never lost in
silence."""

import copy
import functools
import warnings

import pytest
import torch
import torch.nn.utils.parametrize
from torch import nn

import clampgrad
from testing.models import Net


def test_set_gradient_changes_the_class():
    model = Net()
    before = repr(model)
    with pytest.warns(UserWarning, match="left alone derived, because its class, Mine, derives"):
        clampgrad.nn.set_gradient(model, "inclusive")
    assert type(model.again) is clampgrad.nn.ReLU6 and type(model.derived).__name__ == "Mine"
    assert clampgrad.nn.conversions(model) == {
        "body.1": "ReLU6 -> ReLU6(gradient='inclusive')",
        "body.2": "ReLU -> ReLU(inplace=True, gradient='inclusive')",
        "derived": "left alone: its class, Mine, derives from torch's",
        "head.0": "Hardtanh -> Hardtanh(min_val=-2.0, max_val=2.0, gradient='inclusive')",
    }
    clampgrad.nn.set_gradient(model.body, "half")
    assert clampgrad.nn.conversions(model)["body.1"] == "ReLU6 -> ReLU6(gradient='half')"
    assert repr(clampgrad.nn.undo(copy.deepcopy(model))) == before
    assert repr(clampgrad.nn.undo(model)) == before and not clampgrad.nn.conversions(model)
    assert type(model.again) is nn.ReLU6 and "gradient" not in vars(model.again)


def test_a_gradient_is_never_lost_in_silence():
    """Where a library would read torch's class or source, it raises an error."""
    layers = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU()).eval()
    clampgrad.nn.set_gradient(layers, "inclusive")
    with pytest.raises((AssertionError, NotImplementedError)):  # torch's own
        torch.ao.quantization.fuse_modules(layers, [["0", "1"]])
    with pytest.raises((RuntimeError, ValueError)):
        torch.jit.script(layers)


def test_a_derived_class_with_a_forward_of_its_own():
    class Mine(nn.ReLU6):
        def forward(self, x):
            return super().forward(x) * 1

    model = nn.Sequential(Mine(), nn.ReLU6())
    assert list(clampgrad.nn.conversions(clampgrad.nn.convert(model))) == ["1"]
    with pytest.warns(UserWarning, match="left alone 0, because its class, Mine, derives"):
        clampgrad.nn.set_gradient(model, "inclusive")


def test_a_class_that_was_derived_from_ours_since():
    """As fully_shard does it: undo keeps the class, and gives it torch's gradient."""
    model = clampgrad.nn.set_gradient(nn.ReLU6(), "inclusive")
    model.__class__ = type("Sharded", (type(model),), {})
    clampgrad.nn.undo(model)
    x = torch.zeros(1, requires_grad=True)
    assert torch.autograd.grad(model(x), x)[0] == 0 and type(model).__name__ == "Sharded"


def test_undo_after_a_library_has_undone_its_class():
    module = nn.ReLU6()
    module.register_buffer("scale", torch.ones(1))
    clampgrad.nn.set_gradient(module, "inclusive")
    nn.utils.parametrize.register_parametrization(module, "scale", nn.Identity())
    clampgrad.nn.undo(module)
    clampgrad.nn.set_gradient(module, "half")
    clampgrad.nn.undo(module)
    assert "ReLU6" in clampgrad.nn.conversions(module)[""]  # not all of it is undone
    nn.utils.parametrize.remove_parametrizations(module, "scale")
    clampgrad.nn.undo(module)
    assert type(module) is nn.ReLU6 and not clampgrad.nn.conversions(module)


def test_undo_of_a_class_that_a_library_derived_from_ours_before():
    """Nothing is left to undo, whether the library undoes its class first or not."""
    module = clampgrad.nn.Clamp(0, 1)
    module.register_buffer("scale", torch.ones(1))
    nn.utils.parametrize.register_parametrization(module, "scale", nn.Identity())
    clampgrad.nn.set_gradient(module, "inclusive")
    nn.utils.parametrize.remove_parametrizations(module, "scale")
    clampgrad.nn.undo(module)
    assert not clampgrad.nn.conversions(module) and module.gradient == "min_norm"
    assert clampgrad.nn.undo(clampgrad.nn.set_gradient(module, "half")).gradient == "min_norm"


def test_undo_restores_what_one_of_ours_was():
    model = nn.Sequential(clampgrad.nn.ReLU(gradient="half"), clampgrad.nn.Clamp(0, 1))
    clampgrad.nn.undo(clampgrad.nn.set_gradient(model, "inclusive"))
    assert [m.gradient for m in model] == ["half", "min_norm"]


def test_a_filter_chooses_modules():
    model, asked = Net(), []

    def in_the_body(module, fqn):
        asked.append((module, fqn))
        return fqn.startswith("body") and not module.inplace

    clampgrad.nn.set_gradient(model, "half", filter_fn=in_the_body)
    assert list(clampgrad.nn.conversions(model)) == ["body.1"]
    names = ["body.1", "body.2", "derived", "head.0"]
    assert asked == [(model.get_submodule(name), name) for name in names]


def test_a_warning_that_is_an_error_leaves_the_model_unchanged():
    model = nn.Sequential(nn.ReLU6(), nn.ReLU6())
    model[1].forward = lambda input: input
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="left alone 1"):
            clampgrad.nn.set_gradient(model, "half")
    assert type(model[0]) is nn.ReLU6 and clampgrad.nn.conversions(model) == {}


def test_bounds_of_hardtanh_are_numbers():
    """Tensors without dimensions too, as torch reads them: with dtype and gradient of numbers."""
    x = torch.tensor([-1.0, 0.0, 0.5, 6.0, 7.0], requires_grad=True)
    bounds = torch.tensor(0.0).double(), torch.tensor(6.0).double()
    for module in (nn.Hardtanh(*bounds), clampgrad.nn.Hardtanh(*bounds, gradient="joint")):
        clampgrad.nn.set_gradient(module, "joint")
        assert torch.autograd.grad(module(x).sum(), x)[0].tolist() == [0, 0, 1, 0, 0]
        assert module(x[0]).dtype == torch.float32
    with pytest.raises(TypeError, match="clampgrad.clamp"):
        clampgrad.hardtanh(x, 0, nn.Parameter(torch.tensor(1.0)))
    with pytest.raises(TypeError, match="without dimensions"):
        clampgrad.hardtanh(x, 0, torch.tensor([1.0]))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "how", [torch.jit.script, functools.partial(torch.jit.trace, example_inputs=torch.ones(1))]
)
def test_what_torchscript_has_compiled_is_left_alone(how):
    """Which is said if it has another gradient then."""
    model = nn.Sequential(how(nn.ReLU6()), nn.ReLU6(), how(nn.Linear(1, 1)))
    clampgrad.nn.convert(model)
    assert [*clampgrad.nn.conversions(model)] == ["1"]
    with pytest.warns(UserWarning, match="left alone 0, because torch.jit has compiled it"):
        clampgrad.nn.set_gradient(model, "inclusive")
    assert "torch.jit" in clampgrad.nn.conversions(model)["0"]
    x = torch.zeros(1, requires_grad=True)
    assert torch.autograd.grad(model[0](x), x)[0] == 0
    assert repr(clampgrad.nn.undo(model)[1]) == "ReLU6()"


def test_names_and_defaults():
    model = nn.ReLU6()
    assert clampgrad.nn.set_gradient(model, "torch_2_13") is model
    assert clampgrad.nn.conversions(model) == {"": "ReLU6 -> ReLU6(gradient='inclusive')"}
    clampgrad.nn.set_gradient(model, "with_grad", maximize=True)
    assert (model.gradient, model.maximize) == ("with_grad", True)
    assert type(clampgrad.nn.set_gradient(nn.ReLU(), "min_norm")) is clampgrad.nn.ReLU
    for wrong in ({"gradient": "typo"}, {"gradient": "half", "maximize": True}):
        with pytest.raises(ValueError):
            clampgrad.nn.set_gradient(model, **wrong)
    with pytest.warns(UserWarning, match="found no ReLU, ReLU6, Hardtanh or Clamp in Linear"):
        clampgrad.nn.set_gradient(nn.Linear(1, 1), "half")
    assert model.gradient == "with_grad"


def test_a_converted_module_and_back():
    """What convert has done to it is undone first."""
    model = clampgrad.nn.set_gradient(clampgrad.nn.convert(nn.Sequential(nn.ReLU6())), "half")
    assert "_clampgrad" not in vars(model[0])
    clampgrad.nn.undo(model)
    assert repr(model[0]) == "ReLU6()" and clampgrad.nn.conversions(model) == {}
