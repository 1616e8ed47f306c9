"""An exported graph holds our operator and its convention, saved and loaded, also for
training; after run_decompositions() it has only aten operators. TorchScript does the
same, but decomposes nothing."""

import pytest
import torch
from torch.export.experimental import _export_forward_backward

import clampgrad
from oracle import CONVENTIONS, EXACT
from testing.comparing import BOUNDS, assert_same, eager, every_kind, random_with_ties

pytestmark = pytest.mark.filterwarnings(  # of TorchScript
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
)


class Module(torch.nn.Module):
    """Makes every kind of call; or one, on a value of the graph, which may be changed in place."""

    def __init__(self, convention, name=None):
        super().__init__()
        self.convention, self.name = convention, name
        self.lo = torch.nn.Parameter(torch.zeros(8))
        self.hi = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        if not self.name:
            return every_kind(x, self.lo, self.hi, self.convention)
        function, bounds = getattr(clampgrad, self.name), BOUNDS[self.name.rstrip("_")]
        return function(x + 0, **bounds, gradient=self.convention)


class Loss(Module):
    def forward(self, x):
        return super().forward(x).sum()


def namespaces(program):
    return {node.target.namespace for node in program.graph.nodes if node.op == "call_function"}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("operator", BOUNDS)
def test_operators(operator, suffix, strict):
    module, shapes = Module("half", operator + suffix), {"x": {0: torch.export.Dim("rows")}}
    program = torch.export.export(
        module, (random_with_ties(5, 8),), strict=strict, dynamic_shapes=shapes
    )
    assert "clampgrad" in namespaces(program)
    decomposed = program.run_decompositions()
    assert namespaces(decomposed) == {"aten"}
    for exported in (program, decomposed):
        x = random_with_ties(9, 8)
        assert_same(exported.module()(x), getattr(torch, operator)(x, **BOUNDS[operator]))


def slopes(module, x):
    """The gradients of the input and of both bounds; all sums of ties are exact here."""
    leaf = x.clone().requires_grad_()
    bounds = [dict(module.named_parameters())[name] for name in ("lo", "hi")]
    return torch.autograd.grad(module(leaf), [leaf, *bounds], torch.ones_like(x))


def example():
    return random_with_ties(5, 8, nan=False).clamp(-9, 9)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_fine_tuning_an_exported_module(convention, tmp_path):
    module, x = Module(convention), example()
    program = torch.export.export(module, (x,))
    assert namespaces(program) == {"clampgrad", "aten"}
    torch.export.save(program, tmp_path / "module.pt2")
    for exported in (program, torch.export.load(tmp_path / "module.pt2")):
        assert_same(slopes(exported.module(), x), slopes(module, x))


@pytest.mark.parametrize("convention", EXACT)
def test_forward_and_backward_in_one_graph(convention):
    """Decomposed together, they are aten operators that compute our gradient."""
    module, x = Loss(convention), example()
    joint = _export_forward_backward(torch.export.export(module, (x,)))
    assert namespaces(joint) == {"aten"}
    _, *gradients = joint.graph_module(module.lo.detach(), module.hi.detach(), x)
    assert_same(gradients, torch.autograd.grad(module(x), [module.lo, module.hi]))


class OfData(torch.nn.Module):
    def forward(self, x):
        n = x.sum().int().item()
        y = clampgrad.clamp(x, 0, n, gradient="half")
        return y + clampgrad.clamp(x, max=n, gradient="joint")


@pytest.mark.parametrize("strict", [False, True])
def test_a_bound_made_of_data(strict):
    program = torch.export.export(OfData(), (torch.ones(3, requires_grad=True),), strict=strict)
    for x in (torch.tensor([1.0, 2, -1]), torch.tensor([3.0, 4, -2])):
        assert_same(*(eager(f, [x], torch.ones(3)) for f in (program.module(), OfData())))


# ---- TorchScript --------------------------------------------------------------------------------


def several(x: torch.Tensor, y: torch.Tensor, bound: float):
    z = clampgrad.clamp(x, 0, bound, gradient="half") + clampgrad.clamp_min_(x * 1, 0.0)
    z = z + clampgrad.clamp_with_grad(x, 0, y) + clampgrad.clamp_with_grad(x, max=1, maximize=True)
    z = z + clampgrad.clamp(x, y, bound, gradient="joint") + clampgrad.clamp_max(x, 1)
    z = z + clampgrad.clamp_(x * 1, min=0, gradient="inclusive")
    return z + clampgrad.clamp(x, y, y + 1) + clampgrad.maximum(x, y, gradient="joint")


def within_one(x: torch.Tensor, y: torch.Tensor):
    return several(x, y, 1.0)


@pytest.mark.parametrize("how", ["trace", "script"])
def test_torchscript(how, tmp_path):
    """Includes 0-dim Tensors, which are not numbers."""
    args = example(), example().flip(0)
    script = torch.jit.trace(within_one, args) if how == "trace" else torch.jit.script(within_one)
    script.save(str(tmp_path / "script.pt"))
    for function in (script, torch.jit.load(str(tmp_path / "script.pt"))):
        for given in (args, (torch.zeros(()), torch.zeros(()))):
            expected = eager(within_one, given, torch.ones_like(given[0]))
            for _ in range(3):  # the executor looks twice before it specialises
                assert_same(function(*given), within_one(*given))
                assert_same(eager(function, given, torch.ones_like(given[0])), expected)


def slopes_of(f, count=2):
    """A function of Tensors that differentiates f by the first ones."""

    def g(*args):
        return torch.cat(torch.autograd.grad(f(*args).sum(), args[:count]))

    return g


DIFFERENTIATED = {
    "Tensors": slopes_of(lambda x, y: clampgrad.clamp(x, y, y.detach() + 4)),
    **{
        f"clamp, {c}": slopes_of(lambda x, y, c=c: clampgrad.clamp(x, 1.0, 9.0, gradient=c), 1)
        for c in CONVENTIONS
    },
    **{
        f"{f.__name__}, {c}": slopes_of(lambda x, y, f=f, c=c: f(x, y, gradient=c))
        for c in EXACT
        for f in (clampgrad.clamp_min, clampgrad.maximum)
    },
}
UNTRACED = pytest.mark.of_cpus("no trace follows a backward in another thread, torch's own neither")


@UNTRACED
@pytest.mark.parametrize("kind", DIFFERENTIATED)
def test_a_gradient_that_is_traced(kind):
    """It belongs to the inputs of a run, not to those of the recording."""
    f = DIFFERENTIATED[kind]
    recorded, others = (
        [torch.tensor(v, requires_grad=True) for v in values]
        for values in (([1.0, 1, 9], [1.0, 2, 0]), ([5.0, -5, 1], [6.0, -5, -3]))
    )
    trace = torch.jit.trace(f, recorded, check_trace=False)
    assert_same(trace(*others), f(*others))


@UNTRACED
@pytest.mark.parametrize("call", [
    lambda x: torch.ops.clampgrad.clamp(x, 1.0, 9.0),
    lambda x: torch.ops.clampgrad.clamp_mingrad(x, 1.0, 9.0),
    lambda x: clampgrad.clamp_(x * 1, 1.0, 9.0),
])  # fmt: skip
def test_a_gradient_that_no_trace_holds(call):
    """What the trace could only keep as a constant is an error, as with torch.clamp_."""
    with pytest.raises(RuntimeError, match="constant"):
        torch.jit.trace(slopes_of(call), (torch.ones(2, requires_grad=True),), check_trace=False)
