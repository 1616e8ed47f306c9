"""PyTorch's own tools name our operators: anomaly mode, the profiler, nodes of the graph."""

import pytest
import torch

import clampgrad
from oracle import CONVENTIONS
from testing.comparing import CALLS

BOUNDS = torch.zeros(3), torch.ones(3)


def kind(name):
    """The word for `name` in the name of the node."""
    if name == "maximum":
        return "extremum"
    # The portable implementation composes some of them.
    return "(clamp|where)" if clampgrad.implementation == "portable" else "clamp"


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_anomaly_mode_names_the_operator_and_the_line(name):
    if name == "clamp_" and clampgrad.implementation == "portable":
        pytest.skip("in place it is a copy, and the copy is named")
    x = torch.full((3,), 0.5, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = CALLS[name](x, *BOUNDS)
        with (
            pytest.warns(UserWarning, match=rf"(?is)detected in {kind(name)}.*CALLS\[name\]\(x"),
            pytest.raises(RuntimeError, match=rf"(?i)'{kind(name)}\w*Backward0*.*nan values"),
        ):
            y.backward(torch.full((3,), torch.nan))


@pytest.mark.compiled("torch's profiler knows operators, and no functions of Python")
@pytest.mark.parametrize(
    "name, shapes",
    [  # of the bounds; a number has none
        ("clamp", [[], []]),
        ("clamp", [[1], [2, 3]]),
        ("clamp_min", [[]]),
        ("clamp_max", [[1]]),
        ("clamp_", [[1], [3]]),
        ("maximum", [[2, 3]]),
    ],
)
def test_the_profiler_shows_arguments(name, shapes):
    """The same as for torch.ops.clampgrad, which the dispatcher calls: name,
    shapes, and the node's number."""
    bounds = [torch.ones(shape) if shape else 0.25 for shape in shapes]

    def profile_call(namespace):
        x = torch.full((3,), 0.5, requires_grad=True) * 1
        last = x.grad_fn._sequence_nr()
        with torch.profiler.profile(record_shapes=True) as profile:
            getattr(namespace, name)(x, *bounds)
        event = next(e for e in profile.events() if e.name == f"clampgrad::{name}")
        return event.input_shapes, event.sequence_nr - last

    input_shapes, number = profile_call(clampgrad)
    assert (input_shapes, number) == profile_call(torch.ops.clampgrad)
    assert input_shapes[: 1 + len(shapes)] == [[3], *shapes] and number > 0


@pytest.mark.compiled("the portable implementation saves masks, which broadcast as torch's")
@pytest.mark.of_kernels("compositions save masks too")
@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_node_refuses_a_gradient_of_another_shape(others):
    """In a direct call; the engine compares shapes before it calls a node."""
    x = torch.zeros(2, 3, requires_grad=True)
    function = clampgrad.maximum if others == 1 else clampgrad.clamp
    node = function(x, *[torch.ones(2, 3)] * others or [0]).grad_fn
    assert node(torch.ones(2, 3)) is not None
    message = r"Backward\d: got a gradient of shape .* output of shape \[2, 3\]"
    for shape in ((3, 2), (6,), (7,), (2, 1), ()):
        with pytest.raises(RuntimeError, match=message):
            node(torch.ones(shape))


@pytest.mark.compiled("a node in Python has no such attributes")
def test_attributes_of_a_node():
    """Where the fused kernels are not used, as with a tangent, the operators that PyTorch itself
    would carry save what clamp's node saves."""
    leaf = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(leaf, torch.ones(3))
        torch_node = torch.clamp(x, 0, 1).grad_fn
        node = torch.ops.clampgrad.clamp_mingrad(x, 0, 1).grad_fn
    for name in ("_saved_self", "_saved_min", "_saved_max"):
        actual, expected = getattr(node, name), getattr(torch_node, name)
        assert actual is expected or actual == expected, name


@pytest.mark.compiled("the portable implementation records a byte per element")
@pytest.mark.of_kernels("compositions save what they compare")
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_fast_path_saves_bits_alone(convention):
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    node = clampgrad.clamp(x, 0, 1, gradient=convention).grad_fn
    saved = [getattr(node, a) for a in dir(node) if a.startswith("_saved_")]
    dtypes = [t.dtype for t in saved if isinstance(t, torch.Tensor)]
    # straight_through has nothing to remember.
    assert dtypes == [torch.uint8] * (convention != "straight_through")
    with torch.no_grad():
        assert clampgrad.clamp(x, 0, 1, gradient=convention).grad_fn is None


@pytest.mark.parametrize("name", CALLS)
def test_what_is_saved_is_freed_by_backward(name):
    y = CALLS[name](torch.full((3,), 0.5, requires_grad=True), *BOUNDS).sum()
    y.backward()
    if "straight_through" not in name:
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
