"""convert: it changes what modules do and not what they are, reports it, and takes it back."""

import copy
import functools
import pickle
import types

import pytest
import torch
from torch import nn

import clampgrad
from benchmarks.memory import saved_bytes
from testing.comparing import assert_same, eager, random_with_ties, saved_and_loaded
from testing.models import Net
from testing.processes import script_runner

pytestmark = pytest.mark.of_kernels("compositions keep whole Tensors")
# What a clamp of 1000 elements keeps: bits in words of 64 bits, or the
# portable implementation's bytes.
OURS = saved_bytes(clampgrad.relu6, torch.ones(1000, requires_grad=True))
# What is said of both functions that change a model.
CHANGES = {
    "convert": clampgrad.nn.convert,
    "set_gradient": functools.partial(clampgrad.nn.set_gradient, gradient="inclusive"),
}


class Alone(nn.Module):
    """Nothing but the module keeps its input or its result."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x + 1) + 1


def bias_gradient(model, call):
    model.zero_grad()
    call(torch.zeros(1, 4)).sum().backward()
    return model.body[0].bias.grad.tolist()


def at_the_bound():
    """Every activation is exactly 0: torch's gradient is 0 all the way."""
    model = Net()
    nn.init.zeros_(model.body[0].bias)
    model.derived = nn.Identity()
    return model


# ---- With torch's gradient: the class stays ------------------------------------------------------


def test_a_conversion_changes_neither_class_nor_object():
    model, seen = Net(), []
    model.again.register_forward_hook(lambda *_: seen.append(1))
    before, state, modules = repr(model), copy.deepcopy(model.state_dict()), list(model.modules())
    classes = [type(m) for m in modules]
    x = torch.randn(100, 4)
    expected, bytes_before = model(x), saved_bytes(model, x)
    assert clampgrad.nn.convert(model) is model
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert [type(m) for m in model.modules()] == classes
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
    seen.clear()
    assert_same(model(x), expected)
    assert seen == [1, 1]  # hooks are kept
    assert saved_bytes(model, x) < bytes_before
    conversions = clampgrad.nn.conversions(model)
    assert conversions.pop("body.2").startswith("left alone: it keeps its result")
    assert conversions == {
        "body.1": "ReLU6(gradient='min_norm')",
        "derived": "Mine(gradient='min_norm')",
        "head.0": "Hardtanh(min_val=-2.0, max_val=2.0, gradient='min_norm')",
    }
    assert repr(model.again) == "ReLU6(gradient='min_norm')"
    assert clampgrad.nn.undo(model) is model
    assert repr(model) == before and not clampgrad.nn.conversions(model)
    assert saved_bytes(model, x) == bytes_before


@pytest.mark.parametrize(
    "module", [nn.ReLU(), nn.ReLU6(inplace=True), nn.Hardtanh(-2, 1)], ids=repr
)
def test_a_converted_module_computes_what_torchs_does(module):
    model = Alone(copy.deepcopy(module))
    clampgrad.nn.convert(model, example_inputs=torch.ones(200, requires_grad=True))
    assert "left" not in clampgrad.nn.conversions(model)["module"]
    twin = model.module
    for dtype in (torch.float32, torch.bfloat16):
        x, g = (
            random_with_ties(50, dtype=dtype, nan=False) * 6,
            random_with_ties(50, dtype=dtype, seed=1),
        )
        assert_same(twin(x.clone()), module(x.clone()))
        assert_same(*(eager(lambda x, m=m: m(x.clone()), [x], g)[0] for m in (twin, module)))
        given = x.clone()
        assert (twin(given) is given) == module.inplace


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bounds", [(-0.7, 0.7), (-0.1, 1 / 3), (-1e-6, 3.01), (-2.0, 1.0)])
def test_bounds_that_a_dtype_rounds(bounds, dtype):
    """At each number of the dtype: torch compares with the bound before it is rounded."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    x = x[~x.isnan()]
    module = nn.Hardtanh(*bounds)
    converted, saved = clampgrad.nn.convert(copy.deepcopy(module)), []
    outcomes = [
        eager(lambda x, m=m: m(x.clone()), [x], torch.ones_like(x)) for m in (converted, module)
    ]
    assert_same(*(gradients for gradients, *_ in outcomes))
    for m in (converted, module):
        saved.append(saved_bytes(m, x.clone().requires_grad_()))
    is_rounded = any(torch.tensor(b, dtype=dtype).double() != b for b in bounds)
    assert (saved[0] == saved[1]) == is_rounded


def test_the_method_of_torchs_class_serves_others():
    """It is borrowed, or wrapped by somebody else."""
    clampgrad.nn.convert(nn.ReLU())

    class Borrows(nn.Module):
        inplace = False
        forward = nn.ReLU.forward

    assert Borrows()(torch.tensor(-1.0)) == 0
    converted_forward = nn.ReLU.forward
    calls = []

    @functools.wraps(converted_forward)
    def wrapper(self, input):
        calls.append(input)
        return converted_forward(self, input)

    nn.ReLU.forward = wrapper
    try:
        model = Alone(nn.ReLU())
        clampgrad.nn.convert(model, example_inputs=torch.ones(200, requires_grad=True))
        assert "which keeps" in clampgrad.nn.conversions(model)["module"] and len(calls) == 1
    finally:
        nn.ReLU.forward = converted_forward


def test_modules_that_are_not_converted_are_torchs():
    """Once torch's classes have been changed, too."""
    clampgrad.nn.convert(nn.ReLU6())
    for module in (nn.ReLU(), nn.ReLU6(inplace=True), nn.Hardtanh(-2.0, 2.0)):
        node = module(torch.ones(1, requires_grad=True) * 1).grad_fn
        assert type(node).__name__ in ("ReluBackward0", "HardtanhBackward0", "HardtanhBackward1")
        assert "gradient" not in repr(module)
        assert torch.jit.script(module).code.count("torch.") == 1


def operators(graph):
    return [node.kind() for node in graph.nodes()]


def targets(graph):
    return [str(node.target) for node in graph.nodes]


GRAPHS = {
    "jit.trace": lambda m, x: operators(torch.jit.trace(m, x).inlined_graph),
    "jit.script": lambda m, x: operators(torch.jit.script(m).inlined_graph),
    "fx": lambda m, x: targets(torch.fx.symbolic_trace(m).graph),
    "export": lambda m, x: targets(torch.export.export(m, (x,), strict=False).graph),
    "export, strict": lambda m, x: targets(torch.export.export(m, (x,), strict=True).graph),
}


@pytest.mark.parametrize("capture", GRAPHS)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_graph_has_torchs_own_functions(capture):
    """Other libraries read graphs, and know those."""
    model, x = nn.Sequential(nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-2.0, 2.0)), torch.ones(3)
    expected = GRAPHS[capture](model, x)
    clampgrad.nn.convert(model)
    assert GRAPHS[capture](model, x) == expected
    assert "hardtanh" in str(expected) or capture == "fx"  # where each module is one node


# ---- Which modules -------------------------------------------------------------------------------


def test_a_filter_sees_every_name_of_a_shared_module():
    shared = nn.ReLU6()
    for change in CHANGES.values():
        for accepted in "ab":
            model, seen = nn.ModuleDict({"a": shared, "b": shared}), []
            change(model, filter_fn=lambda module, name: seen.append(name) or name == accepted)
            # The first name that is accepted is the last that is asked for.
            assert seen == ["a", "b"][: "ab".index(accepted) + 1]
            assert [*clampgrad.nn.conversions(model)] == ["a"]
            clampgrad.nn.undo(model)


def test_a_filter_where_modules_are_shared_at_every_level():
    """The first of 2 ** 64 names is accepted, and no other is made."""
    relu = model = nn.ReLU6()
    for _ in range(64):
        model = nn.Sequential(model, model)
    for change in CHANGES.values():
        change(model, filter_fn=lambda module, name: module is relu)
        assert [*clampgrad.nn.conversions(model)] == [".".join("0" * 64)]
        clampgrad.nn.undo(model)


def test_a_filter_rejects_a_module_that_is_shared_at_every_level():
    """It has 2 ** 30 names, of which the filter sees a thousand."""
    shared = nn.ReLU6()
    for _ in range(30):
        shared = nn.Sequential(shared, shared)
    model = nn.Sequential(shared, nn.ReLU6())
    for change in CHANGES.values():
        names = []
        change(model, filter_fn=lambda module, name: names.append(name) or name == "1")
        assert len(names) == len({*names}) == 1001
        assert [*clampgrad.nn.conversions(model)] == ["1"]
        clampgrad.nn.undo(model)


def test_convert_leaves_modules_of_ours_as_they_are():
    """It changes no gradient, neither of our modules nor what set_gradient has set."""
    own = clampgrad.nn.ReLU(gradient="half"), clampgrad.nn.Clamp(0, 1, gradient="inclusive")
    model = clampgrad.nn.set_gradient(nn.Sequential(nn.ReLU6()), "inclusive").extend(
        [*own, nn.Hardtanh()]
    )
    before = [repr(module) for module in model[:3]]
    clampgrad.nn.convert(model)
    assert [repr(module) for module in model[:3]] == before
    report = clampgrad.nn.conversions(model)
    assert report["0"] == "ReLU6 -> ReLU6(gradient='inclusive')" and [*report] == ["0", "3"]
    with pytest.warns(
        UserWarning, match="found no .* of torch.nn in Sequential: those of clampgrad.nn"
    ):
        clampgrad.nn.convert(model[:3])


def test_an_example_does_not_initialise_a_model():
    """It would stay initialised, with statistics of the example and a random
    state that is set back."""
    for lazy in (nn.LazyLinear(4), nn.LazyBatchNorm1d(affine=False)):
        model = nn.Sequential(lazy, nn.ReLU6())
        with pytest.raises(ValueError, match="is not initialised yet"):
            clampgrad.nn.convert(model, example_inputs=torch.randn(3, 4))
        assert clampgrad.nn.conversions(model) == {}
        model(torch.randn(3, 4))
        clampgrad.nn.convert(model, example_inputs=torch.randn(3, 4))
    model = nn.ModuleDict({"unused": nn.LazyLinear(4), "act": nn.ReLU6()})
    model.forward = lambda x: model["act"](x)
    clampgrad.nn.convert(model, example_inputs=torch.randn(3, 4))
    assert [*clampgrad.nn.conversions(model)] == ["act"]


def test_a_filter_where_a_module_has_its_parent():
    parent, child = nn.ReLU6(), nn.ReLU6()
    parent.child, child.parent = child, parent
    seen = []
    clampgrad.nn.convert(parent, filter_fn=lambda module, name: seen.append(name) or True)
    assert seen == ["", "child"] and [*clampgrad.nn.conversions(parent)] == seen


@pytest.mark.parametrize("name", ["convert", "set_gradient", "conversions", "undo"])
def test_what_is_no_module(name):
    function = CHANGES.get(name) or getattr(clampgrad.nn, name)
    with pytest.raises(TypeError, match=f"{name}: model must be a torch.nn.Module, not NoneType"):
        function(None)
    with pytest.raises(TypeError, match=f"{name}: .* an instance of a module, not the class Net"):
        function(Net)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_convert_of_a_scripted_model_says_that_it_is():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(1, 1), nn.ReLU6()))
    for change in CHANGES.values():
        with pytest.warns(
            UserWarning, match="torch.jit has compiled it; change the model before that"
        ):
            change(scripted)


def test_convert_of_one_module_and_of_none():
    relu = nn.ReLU6()
    assert clampgrad.nn.convert(relu) is relu
    assert clampgrad.nn.conversions(relu) == {"": "ReLU6(gradient='min_norm')"}
    with pytest.warns(UserWarning, match="found no ReLU, ReLU6 or Hardtanh of torch.nn in Linear"):
        assert not clampgrad.nn.conversions(clampgrad.nn.convert(nn.Linear(1, 1)))
    with pytest.warns(UserWarning, match="found no .* that filter_fn accepts in ReLU"):
        clampgrad.nn.convert(relu, filter_fn=lambda module, fqn: False)


def hooked(module):
    """As accelerate does it: a forward of the instance calls the one that was there."""
    module._old_forward = module.forward
    module.forward = types.MethodType(lambda self, *args: self._old_forward(*args), module)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", ["hooked", "converted"])
def test_a_forward_of_the_instance_that_calls_the_class(change, first):
    module, x = nn.ReLU6(), torch.zeros(1000, requires_grad=True)
    if first == "hooked":
        hooked(module)
    CHANGES[change](module)
    if first == "converted":
        hooked(module)
    assert saved_bytes(module, x) == OURS
    assert torch.autograd.grad(module(x).sum(), x)[0][0] == (change == "set_gradient")
    clampgrad.nn.undo(module)
    assert saved_bytes(module, x) == 4000


def hides_the_old(module):
    old = module._kept = module.forward
    module.forward = lambda x: old(x)


def is_another(module):
    module.forward = lambda x: x * 1


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("set_forward", [hides_the_old, is_another])
def test_a_forward_of_the_instance_that_calls_something_else(change, set_forward):
    model = nn.Sequential(nn.ReLU6(), nn.ReLU6())
    set_forward(model[0])
    with pytest.warns(UserWarning, match="left alone 0, because a forward of its own was set"):
        CHANGES[change](model)
    conversions = clampgrad.nn.conversions(model)
    assert conversions["0"] == "left alone: a forward of its own was set on the instance"
    assert type(model[0]) is nn.ReLU6 and "left" not in conversions["1"]


# ---- Compiled code -------------------------------------------------------------------------------


def test_compiled_code_notices_a_conversion(backend):
    model = at_the_bound()
    for call in (model, torch.compile(model, backend=backend, fullgraph=True)):
        assert bias_gradient(model, call) == [0] * 4
        clampgrad.nn.convert(model)
        assert bias_gradient(model, call) == [0] * 4
        clampgrad.nn.set_gradient(model, "inclusive")
        assert bias_gradient(model, call) == [1] * 4
        for copied in (copy.deepcopy(model), saved_and_loaded(model, weights_only=False)):
            assert bias_gradient(copied, copied) == [1] * 4
        clampgrad.nn.undo(model)
        assert bias_gradient(model, call) == [0] * 4


def test_a_module_is_compiled_by_itself():
    operators = []

    def backend(graph, _):
        operators.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph

    module = nn.ReLU6()
    for _ in range(2):
        torch.compile(module, backend=backend, fullgraph=True)(torch.ones(1))
        clampgrad.nn.convert(module)
    assert "hardtanh" in operators[0] and operators[1:] == ["clampgrad.clamp.default"]


def test_later_changes_drop_no_compiled_code():
    """The first conversion of the process does."""
    clampgrad.nn.convert(nn.ReLU6())
    graphs = []
    compiled = torch.compile(lambda x: x + 1, backend=lambda g, _: graphs.append(g) or g.forward)
    for change in (lambda module: module, *CHANGES.values(), clampgrad.nn.undo):
        change(nn.ReLU6())
        compiled(torch.ones(1))
    assert len(graphs) == 1


FIRST = """
import torch, clampgrad
from torch import nn
model, x = nn.Sequential(nn.ReLU6(), nn.ReLU6()), torch.ones(3, requires_grad=True)
operators = []
def backend(graph, _):
    operators.append([n.target for n in graph.graph.nodes if n.op == "call_function"])
    return graph
compiled = torch.compile(model, backend=backend, fullgraph=True)
compiled(x)
for change in (clampgrad.nn.convert, clampgrad.nn.undo):
    change(model), compiled(x)
own, ours, again = (["clampgrad" in str(o) for o in targets] for targets in operators[:3])
assert own == again == [False, False] and ours == [True, True], operators
clampgrad.nn.convert(model[1]), compiled(x)
assert "hardtanh" in str(operators[-1][0]) and "clampgrad" in str(operators[-1][1])
assert len(operators) == 4
"""
FIRST_GRADIENT = """
import torch, clampgrad
from torch import nn
model, forward = nn.Sequential(nn.ReLU6(), nn.Hardtanh(0, 6)), nn.ReLU6.forward
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
slope = lambda: torch.autograd.grad(compiled(x := torch.zeros(1, requires_grad=True)), x)[0].item()
assert slope() == 0
clampgrad.nn.set_gradient(model, "inclusive")
assert slope() == 1
clampgrad.nn.undo(model)
assert slope() == 0 and nn.ReLU6.forward is forward and not hasattr(nn.ReLU6, "_clampgrad")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("program", [FIRST, FIRST_GRADIENT], ids=["convert", "set_gradient"])
def test_code_that_was_compiled_before_the_first_change(tmp_path, program):
    """convert drops it; set_gradient changes nothing in the process."""
    with script_runner(tmp_path) as run:
        run(program)


# ---- It travels with the object ------------------------------------------------------------------


def copies(model):
    yield copy.deepcopy(model)
    yield pickle.loads(pickle.dumps(model))
    yield saved_and_loaded(model, weights_only=False)


def test_copies_are_converted():
    model, x = clampgrad.nn.convert(nn.Sequential(nn.ReLU6())), torch.ones(1000, requires_grad=True)
    for copied in copies(model):
        assert clampgrad.nn.conversions(copied) == clampgrad.nn.conversions(model)
        assert saved_bytes(copied, x) == OURS
        clampgrad.nn.undo(copied)
        assert saved_bytes(copied, x) == 4000 and saved_bytes(model, x) == OURS


def test_a_state_dict_is_torchs():
    model, twin = Net(), Net()
    twin.load_state_dict(clampgrad.nn.convert(model).state_dict())
    x = torch.randn(3, 4)
    assert_same(twin(x), model(x))


def test_ensembles():
    models = [clampgrad.nn.convert(Net()) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    x, base = torch.randn(5, 4), copy.deepcopy(models[0]).to("meta")

    def loss(p, b):
        return torch.func.functional_call(base, (p, b), (x,)).sum()

    gradients = torch.func.vmap(torch.func.grad(loss))(parameters, buffers)
    for i, model in enumerate(models):
        expected = torch.autograd.grad(model(x).sum(), [*model.parameters()])
        for (name, _), gradient in zip(model.named_parameters(), expected):
            torch.testing.assert_close(gradients[name][i], gradient)


LOADED = """
import sys, torch
if sys.argv[2] == "missing":
    sys.modules["clampgrad"] = None
model = torch.load(sys.argv[1], weights_only=False)
x = torch.zeros(1000, requires_grad=True)
sizes = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes), lambda t: t):
    model(x)
print(sizes, type(model[0]).__module__)
"""


@pytest.mark.parametrize("change", CHANGES)
def test_another_process_has_the_conversion_or_fails(tmp_path, change):
    file = tmp_path / "model.pt"
    torch.save(CHANGES[change](nn.Sequential(nn.ReLU6())), file)
    with script_runner(tmp_path, "torch") as run:
        out, _ = run(LOADED, file, "there")
        module = "torch.nn.modules.activation" if change == "convert" else "clampgrad.nn.modules"
        assert out == f"[{OURS}] {module}\n"
        assert "ModuleNotFoundError" in run(LOADED, file, "missing", check=False)[1]


# ---- What torch has changed ----------------------------------------------------------------------

CHANGED = """
import torch
from torch import nn
import clampgrad
forward = nn.ReLU.forward
nn.Hardtanh.forward = lambda self, x, more: x
try:
    clampgrad.nn.convert(nn.ReLU6())
except RuntimeError as error:
    print(error)
assert nn.ReLU.forward is forward and not hasattr(nn.ReLU, "_clampgrad")
"""


def test_a_torch_whose_forward_differs_is_left_as_it_is(tmp_path):
    with script_runner(tmp_path) as run:
        out, _ = run(CHANGED)
    assert "does not support torch" in out and "('self', 'x', 'more')" in out


def test_warnings_name_the_line_of_the_caller():
    def has_a_forward():
        module = nn.ReLU6()
        is_another(module)
        return module

    config = torch.ao.quantization.default_qconfig
    calls = [("quanti", lambda: setattr(clampgrad.nn.ReLU6(), "qconfig", config))]
    for change in CHANGES.values():
        calls.append(("found no ReLU", lambda change=change: change(nn.Linear(1, 1))))
        calls.append(("left alone", lambda change=change: change(has_a_forward())))
    for message, call in calls:
        with pytest.warns(UserWarning, match=message) as warned:
            call()
        lines = {(w.filename, w.lineno) for w in warned if message in str(w.message)}
        assert lines == {(__file__, call.__code__.co_firstlineno)}, message
