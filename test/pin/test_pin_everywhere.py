"""Contexts of programs beyond those of test/matrix: a pinned clamp is the operator that names its convention."""

import copy
from functools import partial

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


def points(*shape):
    return tied(*shape, nan=False).clamp(-2, 2)


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


def ensemble(clamp, chunk_size):
    torch.manual_seed(0)
    parameters, buffers = stack_module_state(models := [Model(clamp) for _ in range(3)])
    base = copy.deepcopy(models[0]).to("meta")

    def loss(parameters, buffers, x):
        return functional_call(base, (parameters, buffers), (x,)).sum()

    slopes = vmap(grad(loss), (0, 0, None), chunk_size=chunk_size)
    return slopes(parameters, buffers, points(40))["weight"]


def exported(clamp, strict):
    model = Model(lambda x: clamp(x * 1) * x)
    model.weight.data.fill_(1)
    return by_leaf(torch.export.export(model, (points(40),), strict=strict).module())


def compiled_autograd_of_second_order(clamp, backend):
    x = points(40).requires_grad_()
    (slope,) = torch.autograd.grad((clamp(x * x) * x).sum(), x, create_graph=True)
    y = slope.square().sum()
    with compiled_autograd._enable(torch.compile(backend=backend)):
        y.backward()
    return x.grad


def compiled_region_with_a_parameter(clamp, backend):
    w = points(40).requires_grad_()
    region = torch.compiler.nested_compile_region(lambda x: clamp(x * w))
    f = torch.compile(lambda x: region(x) * 1, backend=backend, fullgraph=True)
    f(torch.ones(40)).sum().backward()
    return w.grad


def compiled_checkpoint(clamp, backend, use_reentrant):
    def f(x):
        return checkpoint(lambda x: clamp(x * 1), x, use_reentrant=use_reentrant)

    return by_leaf(torch.compile(f, backend=backend))


def compiled_region_in_a_chain_of(clamp, backend, count):
    region = torch.compiler.nested_compile_region(lambda x: clamp(x * 1) * x)

    def chain(x):
        for _ in range(count):
            x = region(x)
        return x

    return by_leaf(torch.compile(chain, backend=backend, fullgraph=True))


CONTEXTS = {
    "ensemble": partial(ensemble, chunk_size=None),
    "ensemble in chunks": partial(ensemble, chunk_size=2),
    "exported": partial(exported, strict=False),
    "exported, strict": partial(exported, strict=True),
}
COMPILED = {
    "autograd of second order": compiled_autograd_of_second_order,
    "checkpoint": partial(compiled_checkpoint, use_reentrant=False),
    "checkpoint, reentrant": partial(compiled_checkpoint, use_reentrant=True),
    "region with a parameter": compiled_region_with_a_parameter,
    "region": partial(compiled_region_in_a_chain_of, count=1),
    "regions": partial(compiled_region_in_a_chain_of, count=2),
}
PINS = pytest.mark.parametrize("pin", ["half", "straight_through"])


def check(pin, found):
    torchs = partial(torch.clamp, min=0, max=1)
    expected = found(partial(clampgrad.clamp, min=0, max=1, gradient=pin))
    assert not torch.equal(found(torchs), expected), "no value is at a bound"
    with clampgrad.pin(pin):
        assert_same(found(torchs), expected)


@PINS
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_pinned_clamp_is_ours(name, pin):
    check(pin, CONTEXTS[name])


@PINS
@pytest.mark.parametrize("name", COMPILED)
def test_a_pinned_clamp_in_compiled_code_is_ours(name, pin, backend):
    check(pin, partial(COMPILED[name], backend=backend))
