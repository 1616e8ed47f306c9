"""What programs put around a clamp, beside the contexts of test/matrix: pinned, it is the operator that names its convention."""

import copy

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

import clampgrad
from common import RELEASE, assert_same, tied

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(RELEASE < (2, 11), reason="some cannot do all of this yet"),
]
COMPILED = clampgrad.implementation == "compiled"
CONTEXTS = {}


def points(*shape):
    return tied(*shape, nan=False).clamp(-2, 2)


def context(*ways):
    """Adds a function (clamp, way) -> gradients, once for each way."""

    def add(function):
        for way in ways or [None]:
            name = function.__name__ + (f", {way}" if ways else "")
            CONTEXTS[name] = lambda clamp, way=way: function(clamp, way)

    return add


def by_leaf(f):
    x = points(40).requires_grad_()
    f(x).sum().backward()
    return x.grad


class Model(torch.nn.Module):
    def __init__(self, clamp):
        super().__init__()
        self.weight, self.clamp = torch.nn.Parameter(torch.randint(-1, 2, (40,)).float()), clamp

    def forward(self, x):
        return self.clamp(self.weight * x)


@context((1, "same"), (2, "different"), (None, "same"))
def ensemble(clamp, way):
    torch.manual_seed(0)
    parameters, buffers = stack_module_state(models := [Model(clamp) for _ in range(3)])
    base = copy.deepcopy(models[0]).to("meta")

    def loss(parameters, buffers, x):
        y = functional_call(base, (parameters, buffers), (x + 0 * torch.rand_like(x),))
        return (y * torch.rand_like(y).ge(-1)).sum()

    chunk_size, randomness = way
    slopes = vmap(grad(loss), (0, 0, None), chunk_size=chunk_size, randomness=randomness)
    return slopes(parameters, buffers, points(40))["weight"]


@context(True, False)
def exported(clamp, strict):
    model = Model(lambda x: clamp(x * 1) * x)
    model.weight.data.fill_(1)
    return by_leaf(torch.export.export(model, (points(40),), strict=strict).module())


@context()
def compiled_autograd_of_second_order(clamp, _):
    x = points(40).requires_grad_()
    (slope,) = torch.autograd.grad((clamp(x * x) * x).sum(), x, create_graph=True)
    y = slope.square().sum()
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        y.backward()
    return x.grad


@context()
def compiled_region_with_a_parameter(clamp, _):
    w = points(40).requires_grad_()
    region = torch.compiler.nested_compile_region(lambda x: clamp(x * w))
    f = torch.compile(lambda x: region(x) * 1, backend="aot_eager", fullgraph=True)
    f(torch.ones(40)).sum().backward()
    return w.grad


@context(False, True)
def compiled_checkpoint(clamp, use_reentrant):
    def f(x):
        return checkpoint(lambda x: clamp(x * 1), x, use_reentrant=use_reentrant)

    return by_leaf(torch.compile(f, backend="aot_eager"))


@context(1, 2)
def compiled_region_in_a_chain_of(clamp, count):
    region = torch.compiler.nested_compile_region(lambda x: clamp(x * 1) * x)

    def chain(x):
        for _ in range(count):
            x = region(x)
        return x

    return by_leaf(torch.compile(chain, backend="aot_eager", fullgraph=True))


@pytest.mark.parametrize("pin", ["half", "straight_through"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_pinned_clamp_is_ours(name, pin):
    torch._dynamo.reset()
    found = CONTEXTS[name]
    expected = found(lambda x: clampgrad.clamp(x, 0, 1, gradient=pin))
    assert not torch.equal(found(lambda x: torch.clamp(x, 0, 1)), expected), (
        "no value is at a bound"
    )
    with clampgrad.pin(pin):
        if "region" in name and not COMPILED:
            # Dynamo of 2.11 does not say what was raised.
            says = "raised exception" if RELEASE < (2, 12) else "reach the clamp inside nested"
            with pytest.raises(Exception, match=says):
                found(lambda x: torch.clamp(x, 0, 1))
        else:
            assert_same(found(lambda x: torch.clamp(x, 0, 1)), expected)
