"""convert with an example: exactly the modules are converted whose memory nothing else keeps."""

import copy
import threading
import time
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import clampgrad
from benchmarks.memory import saved_bytes
from testing.comparing import assert_same
from testing.processes import python

pytestmark = pytest.mark.of_kernels("compositions keep whole Tensors, so that nothing is converted")


class Model(nn.Module):
    """Any forward of some modules."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.called = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args, **keywords):
        return self.called(self, *args, **keywords)


def converted(model, *example, **keywords):
    """The names of the modules that are converted; the model keeps no more than before."""
    inputs = keywords or example
    model(*example, **keywords)  # what it keeps itself, it has from here on
    before = saved_bytes(model, *example, **keywords)
    conversions = clampgrad.nn.conversions(clampgrad.nn.convert(model, example_inputs=inputs))
    fewer = before - saved_bytes(model, *example, **keywords)
    words = [text.split("which keeps ") for text in conversions.values()]
    assert fewer == sum(int(w[1].split()[0].replace(",", "")) for w in words if len(w) > 1)
    return [name for name, text in conversions.items() if not text.startswith("left alone")]


class Result:
    def __init__(self, value):
        self.value = value


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g


def x():
    return torch.randn(10, 100, requires_grad=True)


FORWARDS = {
    "the next layer keeps it": (lambda m, x: m.linear(m.relu(x + 1)), []),
    "nothing keeps it": (lambda m, x: m.relu(x + 1) + 1, ["relu"]),
    "it is concatenated": (
        lambda m, x: torch.cat([m.relu(x + 1), m.relu6(x + 2)]),
        ["relu", "relu6"],
    ),
    "its input is the argument": (lambda m, x: m.relu6(x) + 1, []),
    "its input is kept by another": (lambda m, x: m.relu6(y := x + 1) + y.exp() * y, []),
    "two share what they keep": (lambda m, x: m.relu6(y := x + 1) + m.tanh(y), ["relu6", "tanh"]),
    "one of two is kept by another": (
        lambda m, x: m.relu6(x + 1) * 1 + m.tanh(z := x + 2) + z.sin(),
        ["relu6"],
    ),
    "it is the result": (lambda m, x: m.relu(x + 1), []),
    "it is used twice": (lambda m, x: m.relu6(m.relu6(x + 1) + 1) + 1, ["relu6"]),
    "used twice, kept once": (lambda m, x: m.linear(m.relu(m.relu(x + 1) + 1)), ["relu"]),
    "a view of what is kept": (lambda m, x: m.linear(m.relu(x + 1)[:, :]), []),
    "in place": (lambda m, x: m.inplace(m.linear(x)) + 1, ["inplace"]),
    "in place before a layer": (lambda m, x: m.linear(m.inplace(m.linear(x))), []),
    "in a checkpoint": (lambda m, x: checkpoint(m.relu6, x + 1, use_reentrant=False) + 1, []),
    "nothing is recorded": (lambda m, x: m.relu6(x.detach() + 1) + 1, []),
    "the model keeps it": (lambda m, x: setattr(m, "feature", y := m.relu(x + 1)) or y + 1, []),
    "the result is of a class that torch does not know": (lambda m, x: Result(m.relu(x + 1)), []),
    "a function of Python keeps it": (lambda m, x: Keeps.apply(m.relu(x + 1)), []),
    "in torch.func": (lambda m, x: torch.func.vmap(lambda r: m.relu6(r + 1) + 1)(x), []),
    "a part of the graph that is dropped": (lambda m, x: (m.relu(x + 1) + 1).detach() + x, []),
}


@pytest.mark.parametrize("case", FORWARDS)
def test_what_is_converted(case):
    forward, expected = FORWARDS[case]
    modules = {"relu": nn.ReLU(), "relu6": nn.ReLU6(), "tanh": nn.Hardtanh()}
    model = Model(forward, linear=nn.Linear(100, 100), inplace=nn.ReLU(inplace=True), **modules)
    assert converted(model, x()) == expected


def test_a_copy_that_the_forward_makes_is_torchs():
    copies = []

    def forward(m, x):
        copies.append(copy.deepcopy(m.relu))
        return copies[-1](m.relu(x + 1) + 1) + 1

    model = Model(forward, relu=nn.ReLU())
    clampgrad.nn.convert(model, example_inputs=x())
    assert list(clampgrad.nn.conversions(model)) == ["relu"]
    assert clampgrad.nn.conversions(copies[0]) == {} and repr(copies[0]) == "ReLU()"


def test_two_threads_with_an_example():
    """The compiler is on again afterwards."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))

    def forward(m, x):
        time.sleep(0.05)
        return m.relu(x + 1) + 1

    def measure(model, example):
        clampgrad.nn.convert(model, example_inputs=example)

    models = [Model(forward, relu=nn.ReLU()) for _ in range(2)]
    threads = [threading.Thread(target=measure, args=(m, x())) for m in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("which keeps" in clampgrad.nn.conversions(m)["relu"] for m in models)
    graphs = []
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=lambda g, _: graphs.append(g) or g)(torch.ones(1))
    assert graphs


def test_torch_func_that_refuses_hooks():
    model = Model(lambda m, x: torch.func.grad(lambda r: m.relu(r).sum())(x), relu=nn.ReLU())
    with pytest.raises(RuntimeError, match="example_inputs .* torch.func"):
        clampgrad.nn.convert(model, example_inputs=x())


def test_what_cannot_be_measured_is_left_alone():
    model = Model(lambda m, x: m.relu((x + 1).to_sparse()).to_dense() + 1, relu=nn.ReLU())
    clampgrad.nn.convert(model, example_inputs=x())
    assert "cannot be measured" in clampgrad.nn.conversions(model)["relu"]


def two_branches():
    """In training, its modules have a state, and draw random numbers."""
    torch.manual_seed(0)
    modules = {"norm": nn.BatchNorm1d(100), "drop": nn.Dropout(), "relu": nn.ReLU()}
    return Model(lambda m, x: m.relu(m.norm(m.drop(x))) + 1, **modules)


def test_buffers_and_random_states_are_restored():
    model, example = two_branches(), torch.randn(10, 100)
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    clampgrad.nn.convert(model, example_inputs=example)
    assert_same(torch.get_rng_state(), random)
    for name, value in before.items():
        assert_same(model.state_dict()[name], value)
    model(example)
    assert not torch.equal(torch.get_rng_state(), random)
    assert not torch.equal(model.norm.running_mean, before["norm.running_mean"])


def test_a_forward_that_fails_leaves_the_model_as_it_was():
    model = clampgrad.nn.convert(two_branches(), example_inputs=torch.randn(10, 100))
    before, conversions = copy.deepcopy(model.state_dict()), clampgrad.nn.conversions(model)
    with pytest.raises(RuntimeError):
        clampgrad.nn.convert(model, example_inputs=torch.ones(10, 7))
    assert clampgrad.nn.conversions(model) == conversions and "bytes fewer" in conversions["relu"]
    for name, value in before.items():
        assert_same(model.state_dict()[name], value)


def test_buffers_that_are_replaced_resized_added_or_sparse():
    class Buffers(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()
            self.register_buffer("replaced", torch.zeros(2))
            self.register_buffer("resized", torch.zeros(2))
            self.register_buffer("none", None)
            self.register_buffer("sparse", torch.eye(2).to_sparse())
            self.register_buffer("nan", torch.tensor(torch.nan))
            self.register_buffer("removed", torch.ones(1))
            self.register_buffer("expanded", torch.ones(2).expand(3, 2))

        def forward(self, x):
            self.replaced = torch.ones(2)
            self.resized.resize_(3).fill_(1)
            self.none = torch.ones(1)
            self.register_buffer("added", torch.ones(1))
            del self.removed
            self.expanded.data[0] = 5
            return self.relu(x + 1) + 1

    model = Buffers()
    before = dict(model.named_buffers())
    clampgrad.nn.convert(model, example_inputs=x())
    assert {name: id(b) for name, b in model.named_buffers()} == {
        n: id(b) for n, b in before.items()
    }
    assert (
        model.resized.tolist() == [0, 0]
        and model.none is None
        and "which keeps" in str(clampgrad.nn.conversions(model))
    )


def test_a_backward_that_is_pending_still_runs():
    model, example = two_branches(), torch.randn(10, 100)
    result = model(example)
    clampgrad.nn.convert(model, example_inputs=example)
    result.sum().backward()
    assert model.norm.weight.grad is not None


def test_the_choice_is_for_the_state_of_the_model():
    """A frozen layer keeps no input: then nothing else keeps what relu does."""
    model = Model(lambda m, x: m.linear(m.relu(x + 1)), linear=nn.Linear(100, 100), relu=nn.ReLU())
    assert converted(model, x()) == []
    assert converted(model.requires_grad_(False), x()) == ["relu"]
    with torch.no_grad():
        assert clampgrad.nn.conversions(clampgrad.nn.convert(model, example_inputs=x())).keys() == {
            "relu"
        }
    assert (
        "keeps nothing"
        in clampgrad.nn.conversions(clampgrad.nn.convert(model, example_inputs=x().detach()))[
            "relu"
        ]
    )


def test_how_an_example_is_given():
    def forward(m, a, b=None, *, c=1):
        return m.relu(a + (b if isinstance(b, torch.Tensor) else b["b"])) + c

    for example in ((x(), x()), {"a": x(), "b": {"b": x()}, "c": 2}):
        model = Model(forward, relu=nn.ReLU())
        clampgrad.nn.convert(model, example_inputs=example)
        assert "which keeps" in clampgrad.nn.conversions(model)["relu"]


def test_a_module_that_the_example_does_not_reach():
    model = Model(lambda m, x: x + 1, relu=nn.ReLU6())
    clampgrad.nn.convert(model, example_inputs=x())
    assert clampgrad.nn.conversions(model) == {"relu": "left alone: the example does not reach it"}
    assert "_clampgrad" not in vars(model.relu)  # nothing that measures is left


def test_a_module_that_another_thread_runs_is_torchs():
    """Hooks of saved tensors do not see what it keeps."""
    results = []

    def forward(m, x):
        thread = threading.Thread(target=lambda: results.append(m.relu(x)))
        thread.start()
        thread.join()
        return x + results[-1]

    model = Model(forward, relu=nn.ReLU6())
    clampgrad.nn.convert(model, example_inputs=x())
    assert type(results[0].grad_fn).__name__.startswith("Hardtanh")
    assert "does not reach it" in clampgrad.nn.conversions(model)["relu"]


def test_a_graph_that_the_forward_keeps_cannot_be_differentiated():
    """The tensors that it would need are gone."""

    def forward(m, x):
        m.loss = m.relu(x + 1).sum()
        return m.loss

    model = Model(forward, relu=nn.ReLU6())
    clampgrad.nn.convert(model, example_inputs=x())
    with pytest.raises(RuntimeError, match="made this graph for its example"):
        model.loss.backward()


def test_compiled_parts_run_as_they_are_written():
    model = Model(lambda m, x: m.inner(x) + 1, inner=nn.Sequential(nn.Linear(100, 100), nn.ReLU()))
    model.inner.compile(backend="aot_eager")
    clampgrad.nn.convert(model, example_inputs=x())
    assert "which keeps" in clampgrad.nn.conversions(model)["inner.1"]


@pytest.mark.parametrize("seed", range(20))
def test_it_never_keeps_more(seed):
    """Models that are drawn."""
    random = torch.Generator("cpu").manual_seed(seed)

    def draw(n):
        return torch.randint(n, (), generator=random, device="cpu").item()

    kinds = (nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Identity, lambda: nn.Linear(100, 100))
    modules = {f"m{i}": kinds[draw(len(kinds))]() for i in range(8)}
    steps = [(draw(4), draw(8), draw(i + 1), draw(i + 1)) for i in range(12)]

    def forward(m, x):
        values = [x + 1]
        for kind, module, a, b in steps:
            y = getattr(m, f"m{module}")(values[a])
            other = values[b]
            values.append([y + 1, y * other, torch.cat([y, other])[:10], y.exp()][kind])
        return values[-1]

    converted(Model(forward, **modules), x())


def test_an_example_as_the_first_act_of_a_process(tmp_path):
    """Nothing has changed torch's classes there yet."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, clampgrad\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.act = torch.nn.ReLU6()\n"
        "    def forward(self, x):\n"
        "        return self.act(x + 1) + 1\n"
        "model = clampgrad.nn.convert(Model(), example_inputs=torch.ones(1000, requires_grad=True))\n"
        "print(list(clampgrad.nn.conversions(model)), 'left alone' in str(clampgrad.nn.conversions(model)))\n"
    )
    assert python(program) == "['act'] False\n"


def test_ctrl_c_in_the_forward_leaves_the_model_as_it_was():
    def interrupted(model, x):
        if model.interrupts:
            raise KeyboardInterrupt
        return model.relu6(x) + 1

    model = Model(interrupted, relu6=nn.ReLU6(), interrupts=False)
    before = clampgrad.nn.conversions(clampgrad.nn.convert(model))
    model.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        clampgrad.nn.convert(model, example_inputs=x())
    assert before and clampgrad.nn.conversions(model) == before


def test_an_error_that_the_model_catches():
    """What is kept afterwards is not the failed module's: sin keeps the input of relu6."""

    def catches(model, x):
        with suppress(TypeError):
            model.relu("no Tensor")
        h = x + 1
        return h.sin() + model.relu6(h)

    assert converted(Model(catches, relu=nn.ReLU(), relu6=nn.ReLU6()), x()) == []
