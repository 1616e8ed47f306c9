"""Modules: torch.nn's own with a named gradient, and `convert`, which swaps them and swaps them back."""

import copy
import io
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.ao import quantization as ao
from torch.ao.quantization import quantize_fx

import clampgrad
from common import assert_same, eager, tied
from oracle import gradient_of_x

TWINS = [
    (nn.ReLU, clampgrad.nn.ReLU, (), {"min": 0}),
    (nn.ReLU6, clampgrad.nn.ReLU6, (), {"min": 0, "max": 6}),
    (nn.Hardtanh, clampgrad.nn.Hardtanh, (-1, 0.5), {"min": -1, "max": 0.5}),
]
twins = pytest.mark.parametrize("theirs, ours, arguments, bounds", TWINS)


@twins
@pytest.mark.parametrize("inplace", [False, True])
def test_a_twin_is_the_same_module(theirs, ours, arguments, bounds, inplace):
    a, b = theirs(*arguments, inplace=inplace), ours(*arguments, inplace=inplace)
    assert isinstance(b, theirs)
    assert re.sub(r"(, )?gradient='min_norm'", "", repr(b)) == repr(a)
    assert a.state_dict() == b.state_dict()
    assert b.inplace is inplace
    for x in (tied(50), tied(50, dtype=torch.bfloat16), torch.arange(-2, 9)):
        assert_same(b(x.clone()), a(x.clone()))
        given = x.clone()
        assert (b(given) is given) == inplace
    # If x is NaN, torch's own modules differ: their gradient is g or 0.
    x, g = tied(50, nan=False), tied(50, seed=1)
    x.mul_(6)
    expected = eager(lambda x: a(x.clone()), [x], g)
    assert_same(eager(lambda x: b(x.clone()), [x], g), expected)


def test_what_no_module_is_made_of():
    with pytest.raises(ValueError, match="at least one"):
        clampgrad.nn.Clamp()
    for bad in ({"gradient": "typo"}, {"gradient": "half", "maximize": True}):
        for module in (*(ours for _, ours, *_ in TWINS), partial(clampgrad.nn.Clamp, 0)):
            with pytest.raises(ValueError):
                module(**bad)


def test_clamp():
    ascent = clampgrad.nn.Clamp(0, 1, gradient="with_grad", maximize=True)
    assert repr(ascent) == "Clamp(min=0, max=1, gradient='with_grad', maximize=True)"
    (gradient,) = eager(ascent, [torch.tensor([-1.0, 0.5, 2.0])], torch.ones(3))
    assert gradient.tolist() == [1, 1, 0]

    learned = clampgrad.nn.Clamp(torch.zeros(2), nn.Parameter(torch.ones(2)), inplace=True)
    assert list(learned.state_dict()) == ["max", "min"]
    assert repr(learned) == "Clamp(min=(2,), max=(2,), inplace=True, gradient='min_norm')"
    given = torch.tensor([2.0, 0.5])
    assert learned(given) is given
    given.sum().backward()
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


def bias_gradient(model, call):
    model.zero_grad()
    call(torch.zeros(1, 4)).sum().backward()
    return model.body[0].bias.grad.tolist()


def saved_and_loaded(model, save=torch.save, load=torch.load, **keywords):
    file = io.BytesIO()
    save(model, file)
    file.seek(0)
    return load(file, **keywords)


def at_the_bound():
    """Every activation is exactly 0: torch's gradient is 0 all the way."""
    model = Net()
    nn.init.zeros_(model.body[0].bias)
    model.derived = nn.Identity()
    return model


def test_convert_and_undo():
    model, seen = Net(), []
    model.again.register_forward_hook(lambda *_: seen.append(1))
    before, state, modules = repr(model), copy.deepcopy(model.state_dict()), list(model.modules())
    assert clampgrad.nn.convert(model, gradient="inclusive") is model
    assert clampgrad.nn.conversions(model) == {
        "body.1": "ReLU6 -> ReLU6(gradient='inclusive')",
        "body.2": "ReLU -> ReLU(inplace=True, gradient='inclusive')",
        "head.0": "Hardtanh -> Hardtanh(min_val=-2, max_val=2, gradient='inclusive')",
    }
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert type(model.again) is clampgrad.nn.ReLU6 and type(model.derived).__name__ == "Mine"
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
    model(torch.zeros(1, 4))
    assert seen == [1, 1]  # hooks are kept

    clampgrad.nn.convert(model, gradient="half")
    assert clampgrad.nn.conversions(model)["body.1"] == "ReLU6 -> ReLU6(gradient='half')"
    assert repr(clampgrad.nn.undo(copy.deepcopy(model))) == before
    assert clampgrad.nn.undo(model) is model
    assert repr(model) == before and not clampgrad.nn.conversions(model)
    assert type(model.again) is nn.ReLU6 and "gradient" not in vars(model.again)


def test_undo_restores_what_one_of_ours_was():
    model = nn.Sequential(clampgrad.nn.ReLU(gradient="half"), clampgrad.nn.Clamp(0, 1))
    clampgrad.nn.undo(clampgrad.nn.convert(model, gradient="inclusive"))
    assert [m.gradient for m in model] == ["half", "min_norm"]


def test_convert_what_a_filter_chooses():
    model, asked = Net(), []

    def in_the_body(module, fqn):
        asked.append((module, fqn))
        return fqn.startswith("body") and not module.inplace

    clampgrad.nn.convert(model, "half", filter_fn=in_the_body)
    assert list(clampgrad.nn.conversions(model)) == ["body.1"]
    names = ["body.1", "body.2", "head.0"]
    assert asked == [(model.get_submodule(name), name) for name in names]


def test_convert_of_one_module_and_of_none():
    relu = nn.ReLU()
    assert clampgrad.nn.convert(relu, "half") is relu
    assert clampgrad.nn.conversions(relu) == {"": "ReLU -> ReLU(gradient='half')"}
    with pytest.warns(UserWarning, match="found no ReLU, ReLU6, Hardtanh or Clamp in Linear"):
        assert not clampgrad.nn.conversions(clampgrad.nn.convert(nn.Linear(1, 1)))
    with pytest.raises(ValueError, match="typo"):
        clampgrad.nn.convert(relu, "typo")
    assert relu.gradient == "half"


def test_a_forward_of_the_instance_is_left_alone_and_named():
    """accelerate's hooks set one: another class would not change what it calls."""
    model = nn.Sequential(nn.ReLU6(), nn.ReLU6())
    old = model[0].forward
    model[0].forward = lambda *args: old(*args)
    with pytest.warns(UserWarning, match="left alone 0: a forward of its own"):
        clampgrad.nn.convert(model, gradient="inclusive")
    assert list(clampgrad.nn.conversions(model)) == ["1"] and type(model[0]) is nn.ReLU6


def test_convert_changes_the_gradient_and_nothing_else(backend):
    """Compiled code notices."""
    model = at_the_bound()
    for call in (model, torch.compile(model, backend=backend)):
        assert bias_gradient(model, call) == [0] * 4
        clampgrad.nn.convert(model)
        assert bias_gradient(model, call) == [0] * 4
        clampgrad.nn.convert(model, gradient="inclusive")
        assert bias_gradient(model, call) == [1] * 4
        for copied in (copy.deepcopy(model), saved_and_loaded(model, weights_only=False)):
            assert bias_gradient(copied, copied) == [1] * 4
        clampgrad.nn.undo(model)
        assert bias_gradient(model, call) == [0] * 4


# ---- What torch.nn's own modules do ----------------------------------------------------------------------


def test_a_layout_without_the_gradient_that_is_asked_for():
    """It is an error: torch's own gradient never replaces the named one."""
    x = torch.eye(3).to_sparse().requires_grad_()
    with pytest.raises(NotImplementedError, match="gradient='inclusive' of a sparse_coo tensor"):
        clampgrad.relu(x, gradient="inclusive")
    assert clampgrad.relu(x.detach(), gradient="inclusive").layout == torch.sparse_coo
    assert clampgrad.relu(x, gradient="joint").layout == torch.sparse_coo
    with pytest.raises(ValueError, match="typo"):
        clampgrad.relu(x, gradient="typo")


@twins
def test_functions_beside_the_modules(theirs, ours, arguments, bounds):
    function = getattr(clampgrad, ours.__name__.lower())
    x, g = tied(50) * 6, tied(50, seed=1)
    (actual,) = eager(lambda x: function(x, *arguments, gradient="half"), [x], g)
    assert_same(actual, gradient_of_x("half", x, g, **bounds))
    given = x.clone()
    assert function(given, *arguments, inplace=True) is given
    assert_same(given, theirs(*arguments)(x))


@pytest.mark.parametrize("bounds, error", [((1.0, -1.0), ValueError), ((None, 1.0), TypeError)])
def test_bounds_that_hardtanh_refuses(bounds, error):
    for function in (nn.functional.hardtanh, clampgrad.hardtanh):
        with pytest.raises(error):
            function(torch.zeros(2, requires_grad=True), *bounds)


@pytest.mark.parametrize("alias, name", [("torch_2_13", "inclusive"), ("ste", "straight_through")])
def test_an_alias_is_shown_as_its_convention(alias, name):
    assert repr(clampgrad.nn.ReLU6(gradient=alias)) == f"ReLU6(gradient='{name}')"
    assert repr(clampgrad.nn.convert(nn.ReLU6(), alias)) == f"ReLU6(gradient='{name}')"


def test_symbolic_trace():
    model = clampgrad.nn.convert(nn.Sequential(nn.ReLU(), nn.ReLU6(), nn.Hardtanh()), "inclusive")
    model.append(clampgrad.nn.Clamp(0, 1, gradient="half"))
    traced = torch.fx.symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert called == [clampgrad.relu, clampgrad.relu6, clampgrad.hardtanh, clampgrad.clamp]
    x, g = tied(50), tied(50, seed=1)
    assert_same(eager(traced, [x], g)[0], eager(model, [x], g)[0])


# ---- Quantization, which finds modules by their exact type -----------------------------------------------


def quantizable():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU(), nn.Conv2d(1, 1, 1), nn.ReLU6()]
    return nn.Sequential(ao.QuantStub(), *layers, nn.Hardtanh(), ao.DeQuantStub())


def prepare_eager(model, **keywords):
    model.qconfig = ao.get_default_qat_qconfig(**keywords)
    return ao.prepare_qat(model.train())


def prepare_ptq(model):
    model.qconfig = ao.get_default_qconfig()
    return ao.prepare(model.eval())


def prepare_fx(model):
    configs = ao.get_default_qat_qconfig_mapping()
    return quantize_fx.prepare_qat_fx(model[1:-1].train(), configs, torch.ones(2, 1, 3, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prepare", [prepare_eager, prepare_ptq, prepare_fx])
def test_a_module_that_quantization_would_skip_is_refused(prepare):
    built = quantizable().insert(1, clampgrad.nn.ReLU6())
    for model in (clampgrad.nn.convert(quantizable()), built):
        with pytest.raises(NotImplementedError, match="by their exact type and would skip ReLU"):
            prepare(model)
    prepare(clampgrad.nn.undo(clampgrad.nn.convert(quantizable())))


@pytest.mark.filterwarnings("ignore")
def test_what_was_prepared_may_be_converted():
    """It trains with the named gradient, and converts to the same integer model, undone or not."""
    plain, ours, undone = (prepare_eager(quantizable()) for _ in range(3))
    x = torch.randn(2, 1, 3, 3)
    for model in (ours, undone):
        assert len(clampgrad.nn.conversions(clampgrad.nn.convert(model, "inclusive"))) == 3
    for model in (plain, ours, undone):
        model(x).sum().backward()
    clampgrad.nn.undo(undone)
    first, *others = (ao.convert(model.eval())(x) for model in (plain, ours, undone))
    assert all(torch.equal(other, first) for other in others)


@pytest.mark.filterwarnings("ignore")
def test_quantization_of_other_modules_passes_ours_by():
    model = nn.Sequential(nn.Linear(2, 2), clampgrad.nn.ReLU6())
    assert type(ao.quantize_dynamic(model, {nn.Linear})[1]) is clampgrad.nn.ReLU6
    layers = clampgrad.nn.convert(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())).eval()
    with pytest.raises((AssertionError, NotImplementedError)):  # torch's own
        ao.fuse_modules(layers, [["0", "1"]])


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_trace_keeps_the_gradient(recorded):
    example = torch.ones(4, requires_grad=recorded)
    traced = torch.jit.trace(clampgrad.nn.Clamp(0, 1, gradient="half"), example)
    for module in (traced, saved_and_loaded(traced, torch.jit.save, torch.jit.load)):
        x = torch.tensor([0.0, 0.5, 1.0, 2.0], requires_grad=True)
        assert torch.autograd.grad(module(x).sum(), x)[0].tolist() == [0.5, 1, 0.5, 0]
