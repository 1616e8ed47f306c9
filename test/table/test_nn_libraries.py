"""`convert` in the libraries that the tests have: it is as if it had not been, and a named convention is not dropped in
silence. `make check-programs` runs the other cases, in processes of their own."""

import types
import warnings

import pytest
import torch
from torch import nn
from torch.ao import quantization as ao

import clampgrad
from lab.libraries import cases, judging

SLOW = {"pt2e_ptq", "pt2e_qat", "onnx_dynamo"}
DEAR = {*SLOW, "saved", "saved_for_others", "spawned", "compiled_before", "fx_ptq", "export_strict"}
HERE = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, case in cases.CASES.items()
    if cases.is_a_part(case.library) or case.library == "torchao"
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HERE)
def test_a_case(name):
    found = judging.verdicts(name, ["example", "ReLU6"] if name in DEAR else judging.WAYS)
    missing = found.get("stock", "").startswith("ModuleNotFoundError")
    if missing:
        pytest.skip(found["stock"])
    assert not judging.wrong(name, found), found


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_found(monkeypatch):
    def otherwise(model, x):
        return clampgrad.nn.convert(model, judging.NAMED)

    def found(way, change):
        monkeypatch.setitem(judging.WAYS, way, change)
        return judging.verdicts("deepcopied", [way])

    assert judging.wrong("deepcopied", found("convert", otherwise))
    assert judging.wrong("deepcopied", found("ReLU6", judging.stock))
    assert judging.wrong("deepcopied", found("example", None))  # an error
    assert not judging.wrong("deepcopied", found("ReLU6", otherwise))


# ---- A named convention ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_quantized_with_a_named_convention():
    """Prepared first: the same integers, and what has no integers of its own stays."""
    models = []
    for gradient in (None, "inclusive"):
        model = ao.prepare_qat(cases.eager_config(cases.stubbed().train(), qat=True))
        if gradient:
            clampgrad.nn.convert(model, gradient)
        cases.trained(model)
        models.append(ao.convert(model.eval()))
    stock, ours = models
    assert torch.equal(stock(cases.X), ours(cases.X))
    assert [type(m) for m in ours if isinstance(m, clampgrad.nn.modules.Named)] == [
        *(clampgrad.nn.ReLU6, clampgrad.nn.ReLU, clampgrad.nn.Hardtanh)
    ]


@pytest.mark.filterwarnings("ignore:.*(eprecat|migrat|reduce_range)")
def test_a_relu_that_is_fused_is_said_to_be_left_alone():
    fused = ao.fuse_modules_qat(cases.chain().train(), [["3", "4", "5"]])
    model = ao.prepare_qat(cases.eager_config(fused, qat=True))
    with pytest.warns(UserWarning, match="left alone 3, because .* fused its ReLU"):
        clampgrad.nn.convert(model, "inclusive")
    assert list(clampgrad.nn.conversions(model)) == ["2", "10"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clampgrad.nn.convert(model)


def test_a_function_of_torch_that_others_have_replaced_is_called(monkeypatch):
    """Libraries count operations so."""
    model, torchs, called = nn.ReLU6(), nn.functional.hardtanh, []

    def counts(*args, **keywords):
        called.append(args)
        return torchs(*args, **keywords)

    clampgrad.nn.convert(model)(cases.X)
    monkeypatch.setattr(nn.functional, "hardtanh", counts)
    assert not called
    model(cases.X)
    assert len(called) == 1


def test_a_rule_of_deep_lift():
    """Captum looks rules up by class."""
    captum = types.SimpleNamespace(
        SUPPORTED_NON_LINEAR={nn.ReLU: "rule", clampgrad.nn.ReLU6: "theirs"}
    )
    clampgrad.nn.modules.give_rules_of_deep_lift(captum)
    assert captum.SUPPORTED_NON_LINEAR[clampgrad.nn.ReLU] == "rule"
    assert captum.SUPPORTED_NON_LINEAR[clampgrad.nn.ReLU6] == "theirs"
    assert clampgrad.nn.Hardtanh not in captum.SUPPORTED_NON_LINEAR


# ---- The example -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prepared", [False, True])
def test_an_example_changes_no_buffer(prepared):
    """BatchNorm changes its own without counting that; observers resize theirs."""
    model = cases.stubbed().train()
    if prepared:
        model = ao.prepare_qat(cases.eager_config(model, qat=True))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    clampgrad.nn.convert(model, example_inputs=cases.X)
    assert len(clampgrad.nn.conversions(model)) == 3
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name]), name
    cases.trained(model)
    assert not all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_an_example_leaves_an_earlier_graph_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU6()).eval()
    loss = model(cases.X).sum()  # BatchNorm keeps its buffers
    clampgrad.nn.convert(model, example_inputs=cases.X)
    loss.backward()


@pytest.mark.filterwarnings("ignore:.*isinstance")
@pytest.mark.parametrize("in_place", [False, True])
def test_an_example_of_a_compiled_model(in_place):
    """Compiled code saves tensors in a node of its own, and is not measured."""
    model, stock = cases.chain(), cases.trained(cases.chain())
    if in_place:
        model.compile(backend="aot_eager", fullgraph=True)
    else:
        model = torch.compile(model, backend="aot_eager", fullgraph=True)
    clampgrad.nn.convert(model, example_inputs=cases.X)
    assert all("bytes fewer" in text for text in clampgrad.nn.conversions(model).values())
    assert all(map(torch.equal, cases.trained(model), stock))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_model_has_no_module_to_convert():
    with pytest.warns(UserWarning, match="found no ReLU"):
        clampgrad.nn.convert(torch.jit.script(cases.chain()))
