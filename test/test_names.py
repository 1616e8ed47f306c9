"""What PyTorch's own tools say of our operators: anomaly mode, the profiler, nodes of the graph."""

import pytest
import torch

import clampgrad
from oracle import CONVENTIONS

CALLS = {
    f"clamp, {convention}": lambda x, c=convention: clampgrad.clamp(x, 0, 1, gradient=c)
    for convention in CONVENTIONS
} | {
    "clamp_": lambda x: clampgrad.clamp_(x + 0, 0, 1),
    "clamp with Tensors": lambda x: clampgrad.clamp(x, torch.zeros(3), torch.ones(3)),
    "clamp_mingrad": lambda x: torch.ops.clampgrad.clamp_mingrad(x, 0, 1),
    "maximum": lambda x: clampgrad.maximum(x, torch.zeros(3)),
}


def kind(name):
    """Of the node."""
    return "extremum" if name == "maximum" else "clamp"


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_anomaly_mode_names_the_operator_and_the_line(name):
    if name == "clamp_" and clampgrad.implementation == "portable":
        pytest.skip("in place it is a copy, and the copy is named")
    x = torch.full((3,), 0.5, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = CALLS[name](x)
        with (
            pytest.warns(UserWarning, match=rf"(?is)detected in {kind(name)}.*CALLS\[name\]\(x\)"),
            pytest.raises(RuntimeError, match=rf"(?i)'{kind(name)}\w*Backward0*.*nan values"),
        ):
            y.backward(torch.full((3,), torch.nan))


@pytest.mark.compiled("in the profiler an autograd.Function has a name for its backward alone")
@pytest.mark.parametrize("name", CALLS)
def test_the_profiler_shows_forward_and_backward(name):
    x = torch.full((3,), 0.5, requires_grad=True)
    with torch.profiler.profile() as profile:
        CALLS[name](x).sum().backward()
    names = {event.name.lower() for event in profile.events()}
    operator = name.partition(",")[0].split()[0]
    assert [n for n in names if n.startswith("clampgrad::") and operator in n]
    assert [n for n in names if n.startswith(kind(name)) and "backward" in n]


def test_without_a_gradient_the_profiler_shows_aten():
    with torch.profiler.profile() as profile:
        clampgrad.clamp(torch.ones(3), 0, 1)
    assert [e.name for e in profile.events() if "clamp" in e.name][0] == "aten::clamp"


@pytest.mark.compiled("a node in Python has no such attributes")
def test_attributes_of_a_node():
    """Where the kernels of the front doors are not taken, as with a tangent, the operators that
    PyTorch itself would carry save what clamp's node saves."""
    leaf = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(leaf, torch.ones(3))
        theirs = torch.clamp(x, 0, 1).grad_fn
        ours = torch.ops.clampgrad.clamp_mingrad(x, 0, 1).grad_fn
    saved = [a for a in dir(theirs) if a.startswith("_saved_")]
    assert {"_saved_self", "_saved_min", "_saved_max"} <= set(saved)
    for name in saved:
        mine, expected = getattr(ours, name), getattr(theirs, name)
        assert mine is expected or mine == expected, name


@pytest.mark.compiled("the portable implementation records a byte per element")
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_fast_path_saves_bits_alone(convention):
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    node = clampgrad.clamp(x, 0, 1, gradient=convention).grad_fn
    saved = [getattr(node, a) for a in dir(node) if a.startswith("_saved_")]
    tensors = [t for t in saved if isinstance(t, torch.Tensor)]
    # straight_through has nothing to remember.
    assert len(tensors) == (convention != "straight_through")
    assert all(t.dtype == torch.uint8 for t in tensors)
    with torch.no_grad():
        assert clampgrad.clamp(x, 0, 1, gradient=convention).grad_fn is None
