"""`convert` and `set_gradient` where other libraries change modules, and where they would drop a
named gradient in silence. The cases of lab/libraries are more."""

import types
import warnings

import pytest
import torch
from torch import nn
from torch.ao import quantization as ao
from torch.ao.quantization import quantize_fx

import clampgrad
from testing.comparing import seeded

pytestmark = pytest.mark.of_cpus("torch.ao quantises for CPUs")
X = seeded(torch.randn, 2, 3, 6, 6, seed=1) * 3


def chain():
    """A ReLU6 whose input, a ReLU whose result, and a Hardtanh whose input nothing else keeps."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
        *(nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 4, 3), nn.Hardtanh()),
        nn.Conv2d(4, 4, 1),
    )


def prepared(model):
    """For quantisation-aware training."""
    torch.backends.quantized.engine = "fbgemm"
    model = nn.Sequential(ao.QuantStub(), *model, ao.DeQuantStub()).train()
    model.qconfig = ao.get_default_qat_qconfig("fbgemm")
    return ao.prepare_qat(model)


def trained(model):
    result = model(X)
    result.square().sum().backward()
    return [result, *(p.grad for p in model.parameters())]


# ---- A named convention --------------------------------------------------------------------------


def prepared_fx(model):
    configs = ao.get_default_qat_qconfig_mapping("fbgemm")
    return quantize_fx.prepare_qat_fx(model.train(), configs, (X,))


@pytest.mark.parametrize("prepare", [prepared, prepared_fx])
def test_quantization_says_what_it_will_not_know(prepare):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare(clampgrad.nn.convert(chain()))
        assert not [w for w in caught if "gradient" in str(w.message)]
        prepare(clampgrad.nn.set_gradient(chain(), "inclusive"))
    texts = [str(w.message) for w in caught if "gradient='inclusive'" in str(w.message)]
    assert len(texts) == 3
    assert all("Prepare the model first" in text for text in texts)


@pytest.mark.filterwarnings("ignore")
def test_quantized_with_a_named_convention():
    """Prepared first: the same integers, and what has no integers of its own stays."""
    models = []
    for gradient in (None, "inclusive"):
        model = prepared(chain())
        if gradient:
            clampgrad.nn.set_gradient(model, gradient)
        trained(model)
        models.append(ao.convert(model.eval()))
    stock, inclusive = models
    assert torch.equal(stock(X), inclusive(X))
    assert [type(m) for m in inclusive if isinstance(m, clampgrad.nn.modules.GradientModule)] == [
        *(clampgrad.nn.ReLU6, clampgrad.nn.ReLU, clampgrad.nn.Hardtanh)
    ]


@pytest.mark.filterwarnings("ignore:.*(eprecat|migrat|reduce_range)")
def test_a_relu_that_is_fused_is_said_to_be_left_alone():
    model = prepared(ao.fuse_modules_qat(chain().train(), [["3", "4", "5"]]))
    with pytest.warns(UserWarning, match="left alone 4, because .* fused its ReLU"):
        clampgrad.nn.set_gradient(model, "inclusive")
    assert list(clampgrad.nn.conversions(model)) == ["3", "4", "9"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clampgrad.nn.convert(clampgrad.nn.undo(model))


def test_a_function_of_torch_that_others_have_replaced_is_called(monkeypatch):
    """Libraries count operations so."""
    model, torchs, called = nn.ReLU6(), nn.functional.hardtanh, []

    def counts(*args, **keywords):
        called.append(args)
        return torchs(*args, **keywords)

    clampgrad.nn.convert(model)(X)
    monkeypatch.setattr(nn.functional, "hardtanh", counts)
    assert not called
    model(X)
    assert len(called) == 1


def test_a_rule_of_deep_lift():
    """Captum looks rules up by class."""
    captum = types.SimpleNamespace(
        SUPPORTED_NON_LINEAR={nn.ReLU: "rule", clampgrad.nn.ReLU6: "theirs"}
    )
    clampgrad.nn.modules.add_deep_lift_rules(captum)
    assert captum.SUPPORTED_NON_LINEAR[clampgrad.nn.ReLU] == "rule"
    assert captum.SUPPORTED_NON_LINEAR[clampgrad.nn.ReLU6] == "theirs"
    assert clampgrad.nn.Hardtanh not in captum.SUPPORTED_NON_LINEAR


# ---- The example ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quantized", [False, True])
def test_an_example_changes_no_buffer(quantized):
    """BatchNorm changes its own without counting that; observers resize theirs."""
    model = prepared(chain()) if quantized else chain()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    clampgrad.nn.convert(model, example_inputs=X)
    assert len(clampgrad.nn.conversions(model)) == 3
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name]), name
    trained(model)
    assert not all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_an_example_leaves_an_earlier_graph_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU6()).eval()
    loss = model(X).sum()  # BatchNorm keeps its buffers
    clampgrad.nn.convert(model, example_inputs=X)
    loss.backward()


@pytest.mark.filterwarnings("ignore:.*isinstance")
@pytest.mark.parametrize("in_place", [False, True])
def test_an_example_of_a_compiled_model(in_place):
    """Compiled code saves tensors in a node of its own, and is not measured."""
    model, stock = chain(), trained(chain())
    if in_place:
        model.compile(backend="aot_eager", fullgraph=True)
    else:
        model = torch.compile(model, backend="aot_eager", fullgraph=True)
    clampgrad.nn.convert(model, example_inputs=X)
    assert all("bytes fewer" in text for text in clampgrad.nn.conversions(model).values())
    assert all(map(torch.equal, trained(model), stock))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_model_has_no_module_to_convert():
    with pytest.warns(UserWarning, match="found no ReLU"):
        clampgrad.nn.convert(torch.jit.script(chain()))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_model_with_a_scripted_module_is_measured_and_unchanged():
    """Also what stands behind the scripted one."""

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(2))

        def forward(self, x):
            self.calls = self.calls + 1
            return x

    scripted = (
        torch.jit.script(nn.Sequential(nn.BatchNorm1d(3), Counts())),
        torch.jit.trace(clampgrad.nn.Clamp(0, 1), torch.randn(2, 3)),
    )
    model = nn.Sequential(*scripted, nn.BatchNorm1d(3), nn.ReLU6())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    clampgrad.nn.convert(model, example_inputs=torch.randn(8, 3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model[3], nn.ReLU6) and list(clampgrad.nn.conversions(model)) == ["3"]
    with pytest.warns(UserWarning, match="left alone 1, because torch.jit has compiled it"):
        clampgrad.nn.set_gradient(model, "inclusive")
