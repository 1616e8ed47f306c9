"""Nested, quantised, sparse and mkldnn tensors: clamped where torch clamps
them, or torch's own error."""

from functools import partial

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import clampgrad
from oracle import CLAMPS, CONVENTIONS, EXACT, EXTREMA, gradient_of_x
from testing.comparing import BOUNDS, assert_same, eager, random_with_ties, result_or_error
from testing.releases import RELEASE

LENGTHS = (3, 1, 7)


def jagged(values):
    parts = values.split(LENGTHS)
    return torch.nested.nested_tensor(list(parts), layout=torch.jagged, requires_grad=True)


@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("operator", CLAMPS)
def test_sequences_of_several_lengths(operator, convention, suffix):
    values, g = random_with_ties(sum(LENGTHS)), random_with_ties(sum(LENGTHS), seed=1)
    x = jagged(values)
    function = getattr(clampgrad, operator + suffix)
    y = function(x * 1, **BOUNDS[operator], gradient=convention)
    assert y.is_nested
    (gradient,) = torch.autograd.grad(y.values(), x, g)
    assert_same(y.values().detach(), getattr(torch, operator)(values, **BOUNDS[operator]))
    assert_same(gradient.values(), gradient_of_x(convention, values, g, **BOUNDS[operator]))


def test_a_graph_writes_sequences_of_several_lengths(tmp_path, monkeypatch):
    def f(x):
        clampgrad.clamp_min_(x, 0, gradient="inclusive")
        clampgrad.clamp_max_(x, 1, gradient="inclusive")
        return x * 1

    if RELEASE >= (2, 15):  # support.md
        monkeypatch.chdir(tmp_path)  # where torch leaves its graph
        for function in (f, lambda x: torch.clamp_min_(x, 0) * 1):
            torch._dynamo.reset()
            with pytest.raises(BackendCompilerFailed):
                torch.compile(function, backend="aot_eager")(
                    jagged(random_with_ties(sum(LENGTHS))) * 1
                )
        return

    values, g = random_with_ties(sum(LENGTHS), nan=False), random_with_ties(sum(LENGTHS), seed=1)
    torch._dynamo.reset()
    (expected,), (actual,) = (
        torch.autograd.grad(run(x * 1).values(), x, g)
        for run in (f, torch.compile(f, backend="aot_eager"))
        for x in [jagged(values)]
    )
    assert_same(actual.values(), expected.values())


LAYOUTS = {
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "jagged": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.5, 4, torch.quint8),
    "sparse": torch.Tensor.to_sparse,
    "sparse rows": torch.Tensor.to_sparse_csr,
    "mkldnn": torch.Tensor.to_mkldnn,
}
WITH_KERNELS = ("nested", "quantised", "sparse", "sparse rows")
ON = dict.fromkeys(WITH_KERNELS, pytest.mark.of_kernels("it is torch that may have none"))
ON["mkldnn"] = pytest.mark.of_cpus("only CPUs have this layout")
CALLS = {  # torch's functions of activations are in nn.functional
    "clamp": lambda of, nn, x: of.clamp(x, 0, 1),
    "clamp_": lambda of, nn, x: of.clamp_(x, 0, 1),
    "clamp_min": lambda of, nn, x: of.clamp_min(x, 0),
    "clamp with Tensors": lambda of, nn, x: of.clamp(x, x, x),
    "maximum": lambda of, nn, x: of.maximum(x, x),
    "relu": lambda of, nn, x: nn.relu(x),
    "relu6": lambda of, nn, x: nn.relu6(x),
    "hardtanh": lambda of, nn, x: nn.hardtanh(x, -1.0, 0.5),
}


def contents_of(result):
    """Layout and values of a result; an error as it is."""
    if not isinstance(result, torch.Tensor):
        return result
    if result.is_nested:
        return result.layout, [part.tolist() for part in result.unbind()]
    dense = result.dequantize() if result.is_quantized else result.to_dense()
    return result.layout, dense.tolist()


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*beta", "ignore:.*quantiz", "ignore:.*nested")
@pytest.mark.parametrize("recorded", [False, True], ids=["constant", "recorded"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("layout", [pytest.param(n, marks=ON.get(n, ())) for n in LAYOUTS])
def test_other_layouts_match_torch(layout, call, recorded):
    if recorded and layout == "quantised":
        pytest.skip("torch lets no quantised tensor require a gradient")

    def x():
        made = LAYOUTS[layout](torch.tensor([[-1.0, 0.5], [0.0, 2.0]]))
        return made.requires_grad_().clone() if recorded else made

    spaces = (torch, torch.nn.functional), (clampgrad, clampgrad)
    expected, actual = (contents_of(result_or_error(CALLS[call], *space, x())) for space in spaces)
    assert actual == expected


@pytest.mark.parametrize("convention", EXACT)
@pytest.mark.parametrize("name", [*EXTREMA, "clamp_min"])
def test_two_sequences_of_the_same_lengths(name, convention):
    """torch's own maximum has no gradient here."""
    values, g = (
        [random_with_ties(11, seed=i, nan=False) for i in (0, 1)],
        random_with_ties(11, seed=2),
    )
    offsets = torch.tensor([0, 3, 4, 11])

    flat = partial(getattr(clampgrad, name), gradient=convention)

    def f(*values):
        pair = (torch.nested.nested_tensor_from_jagged(v, offsets) for v in values)
        return flat(*pair).values()

    assert_same(f(*values), flat(*values))
    assert_same(eager(f, values, g), eager(flat, values, g))
