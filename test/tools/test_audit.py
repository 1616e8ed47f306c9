"""An audit counts every clamp-like call, and says how far each
convention would move the gradient."""

from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import clampgrad
from clampgrad._tools.audit.positions import AT_LO, cast_for_comparison, find_positions
from oracle import CONVENTIONS, EXACT, EXTREMA
from testing.comparing import eager, random_with_ties
from testing.releases import RELEASED


def audited(f, *args, g=None):
    """The findings of one forward and backward."""
    with clampgrad.audit() as report:
        result = f(*args)
        if result.requires_grad:
            result.backward(torch.ones_like(result) if g is None else g)
    assert not report.skipped
    return list(report)


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


# A call, and what stands at a bound, beyond, and NaN of x = -1, 0, 1, 6, 7, NaN.
X = (-1.0, 0.0, 1.0, 6.0, 7.0, torch.nan)
ZEROS = torch.zeros(6)
CALLS = {
    "clamp": (lambda x: torch.clamp(x, 0, 6), 2, 2),
    "clamp, keywords": (lambda x: x.clamp(min=0, max=6), 2, 2),
    "clip_": (lambda x: (x * 1).clip_(0, 6), 2, 2),
    "clamp_min": (lambda x: x.clamp_min(0), 1, 1),
    "clamp_max_": (lambda x: torch.clamp_max_(x * 1, 6), 1, 1),
    "clamp, Tensor": (lambda x: torch.clamp(x, ZEROS, ZEROS + 6), 2, 2),
    "clamp, one and one": (lambda x: torch.clamp(x, max=ZEROS[0] + 6), 1, 1),
    "lo = hi": (lambda x: torch.clamp(x, 1, 1), 1, 4),
    "lo > hi": (lambda x: torch.clamp(x, 6, 1), 0, 5),
    "max of two": (lambda x: x.max(ZEROS), 1, 1),
    "fmin": (lambda x: x.fmin(other=ZEROS), 1, 3),
    "nn.ReLU": (nn.ReLU(), 1, 1),
    "relu_": (lambda x: F.relu_(x * 1), 1, 1),
    "relu6": (F.relu6, 2, 2),
    "nn.Hardtanh": (nn.Hardtanh(0, 6, inplace=False), 2, 2),
    "clampgrad.minimum": (lambda x: clampgrad.minimum(x, ZEROS), 1, 3),
    "clampgrad.nn": (clampgrad.nn.ReLU6(gradient="half"), 2, 2),
    "clamp, a number and a Tensor without dimensions": (
        lambda x: torch.clamp(x, 0, ZEROS[0] + 6),
        2,
        2,
    ),
    "hardtanh, Tensors without dimensions": (
        lambda x: F.hardtanh(x, torch.tensor(0.0), torch.tensor(6.0)),
        2,
        2,
    ),
    "integers, and floats": (lambda x: torch.maximum(torch.tensor(0), x), 1, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_seen_and_counted(name):
    f, at_bound, beyond = CALLS[name]
    (finding,) = audited(f, leaf(*X))
    assert (finding.calls, finding.recorded, finding.elements) == (1, 1, 6)
    assert finding.dtypes == ["float32"] and finding.moved
    assert (finding.at_bound, finding.beyond, finding.nan) == (at_bound, beyond, 1)
    assert finding.dead == finding.at_bound + finding.beyond + finding.nan
    assert finding.file == __file__ and finding.line
    assert finding.module == (type(f).__name__ if isinstance(f, nn.Module) else "")


CLAMP_NAMES = ("clamp", "clamp_min", "clamp_max", "clampgrad.clamp")
KINDS = [*product(CLAMP_NAMES, ("numbers", "tensors")), ("maximum", "tensors"), ("fmax", "tensors")]


@pytest.mark.parametrize("name, kind", KINDS)
def test_how_far_the_gradient_would_move(name, kind):
    """The sums of an audit equal those from differentiating every element
    again, under each convention."""
    function = getattr(clampgrad, name.removeprefix("clampgrad."))
    torch_function = getattr(torch, name, partial(function, gradient="inclusive"))
    count = 3 if function is clampgrad.clamp else 2
    args, fixed = [random_with_ties(500, seed=s, nan=False) for s in range(count)], ()
    if kind == "numbers":
        args, fixed = args[:1], (0, 1)[: count - 1]
    g = torch.randn(500)

    def gradient(f, **keywords):
        return torch.cat(eager(lambda *args: f(*args, *fixed, **keywords), args, g))

    was = gradient(torch_function)
    expected = {
        c: ((gradient(function, gradient=c) - was).norm() / was.norm()).item()
        for c in (EXACT if name in EXTREMA else CONVENTIONS)
    }
    leaves = [a.clone().requires_grad_() for a in args]
    (finding,) = audited(lambda *leaves: torch_function(*leaves, *fixed), *leaves, g=g)
    assert finding.moved == pytest.approx(expected, rel=1e-5, abs=1e-7)
    # Where both sides of a maximum are differentiated, the exact conventions agree.
    assert (max(finding.moved.values()) > 0.01) == (name != "maximum")


def test_an_input_without_dimensions_is_compared_in_the_dtype_of_the_result():
    """It counts less in type promotion than a bound that has dimensions."""
    x = torch.tensor(0.1, requires_grad=True)
    narrow = torch.full((4,), 0.1, dtype=torch.bfloat16)
    for f in (lambda x: torch.clamp(x, min=narrow), lambda x: x.clamp(narrow, narrow + 1)):
        (finding,) = audited(f, x)
        assert (finding.at_bound, finding.beyond) == (4, 0)
    (finding,) = audited(lambda x: torch.maximum(x.double(), narrow.float()), x)
    assert (finding.at_bound, finding.beyond) == ((narrow.float() == x).sum(), 4)


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "lo, hi", [(0.1, 0.3), (1e-12, 1 - 1e-12), (0.1, 2**24 + 1), (0.1, 2.0**24 + 1), (0.1, 1e37)]
)
def test_a_number_is_rounded_to_the_dtype_of_the_result_alone(lo, hi, dtype, default):
    """The default dtype has no part in it: 0.1 of float64 is not that of float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        x = torch.tensor([lo - 1, lo, 0.2, hi, hi * 2], dtype=torch.float64, device="cpu")
        x = x.to(dtype).to(torch.get_default_device()).requires_grad_()
        (finding,) = audited(lambda x: torch.clamp(x, lo, hi), x)
    finally:
        torch.set_default_dtype(before)
    assert (finding.at_bound, finding.beyond) == (2, 2)


@pytest.mark.parametrize("differentiated", [1, 3])
def test_one_bound_that_is_nan(differentiated):
    """Every element counts, wherever it is beside the other bound."""
    lows, highs = (0.0, torch.nan), (6.0, torch.nan)
    args = [leaf(*values) for values in zip(*product(X, lows, highs))]
    args, fixed = args[:differentiated], [a.detach() for a in args[differentiated:]]

    def gradient(f):
        return torch.cat(eager(lambda *args: f(*args, *fixed), args, torch.ones(24)))

    (finding,) = audited(lambda *args: torch.clamp(*args, *fixed), *args)
    assert (finding.elements, finding.nan) == (24, 19)
    was = gradient(torch.clamp)
    for convention in EXACT:
        distance = (gradient(partial(clampgrad.clamp, gradient=convention)) - was).norm()
        assert finding.moved[convention] == pytest.approx((distance / was.norm()).item(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_infinite_gradient_is_none_that_is_merely_large(dtype):
    x = torch.tensor([0.0, 1.0, 2.0, 0.5], dtype=dtype, requires_grad=True)
    g = torch.tensor([torch.inf, 1.0, 1.0, -torch.inf], dtype=dtype)
    (finding,) = audited(lambda x: x.clamp(0, 1), x, g=g)
    assert finding.not_finite["joint" if RELEASED == "inclusive" else "inclusive"] == 1
    assert "gradient-not-finite" in {w.name for w in finding.warnings}


def test_an_integer_is_rounded_once():
    """That of NumPy, and one beyond int64, too."""
    for number in (2**62 + 2**38 + 1, 2**63 + 2**39 + 1):
        x = torch.tensor([number], dtype=torch.uint64).float().requires_grad_()
        position = find_positions(*cast_for_comparison((x, number, None), torch.float32))
        assert position.tolist() == [AT_LO]
    numpy = pytest.importorskip("numpy")
    (one,) = cast_for_comparison((numpy.int64(2**62 + 2**38 + 1),), torch.float32)
    assert one == 2**62 + 2**39


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (None, 1.0), (0.0, None)], ids=str)
def test_number_bounds_under_vmap_are_compared_on_the_device_of_the_input(bounds):
    """As Tensors they are the CPU's."""
    x = torch.empty(3, 2, device="meta")
    positions = torch.vmap(lambda x: find_positions(*cast_for_comparison((x, *bounds), x.dtype)))(x)
    assert (positions.device, positions.shape) == (x.device, x.shape)


def test_gradients_whose_squares_are_infinite():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (finding,) = audited(lambda x: torch.clamp(x, 0.0, 1.0) * 1e160, x)
    assert finding.moved["joint" if RELEASED == "inclusive" else "inclusive"] in (1, None)
    assert finding.moved[RELEASED] == 0


def test_an_infinite_gradient_has_no_share_in_a_distance():
    """Though restoring returns 1 for any."""
    x = torch.tensor([-1.0, 0.5], requires_grad=True)
    (finding,) = audited(lambda x: torch.clamp(x, 0, 1), x, g=torch.tensor([-torch.inf, 1.0]))
    assert finding.moved["restoring"] == 0


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", ["clip", "clip_", "max", "min"])
def test_a_checkpoint_of_a_function_that_kernels_know_by_another_name(name, use_reentrant):
    bounds = (torch.ones(2),) if name in ("max", "min") else (0, 1)
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    with clampgrad.audit() as report:
        run = lambda x: getattr(torch, name)(x * 1, *bounds).exp().sin()  # noqa: E731
        checkpoint(run, x, use_reentrant=use_reentrant).sum().backward()
    (finding,) = report
    assert (finding.function, finding.calls, finding.elements) == (name, 1, 2)
    assert finding.moved[RELEASED] == 0


def test_sites_steps_and_dead_elements():
    """The second forward of a checkpoint does not count again."""
    layers = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()
    layers[0].bias.data.fill_(-100)  # dead for good
    layers[2].bias.data.fill_(100)
    model = nn.Sequential(nn.Hardtanh(0, 1), *layers)
    with clampgrad.audit() as report:
        for start in (0.0, 0.25, 2.0):
            x = torch.arange(8.0).view(2, 4) / 8 + start
            checkpoint(model, x, use_reentrant=False).sum().backward()
    assert all(f.calls == 3 and f.elements == 24 for f in report)
    dead = {f.module: f.dead for f in report}
    assert dead == {"Sequential.0": 0, "Sequential.2": 8, "Sequential.4": 0}  # x = 0 moved inside
    # The input is not differentiated.
    assert [f.function for f in report if not f.moved] == ["hardtanh"]


def test_dead_is_not_known_where_shapes_change_or_memory_ends(monkeypatch):
    with clampgrad.audit() as report:
        for n in (1, 2):
            torch.zeros(n).clamp(0, 1)
    (finding,) = report
    assert (finding.calls, finding.elements, finding.dead) == (2, 3, None)
    monkeypatch.setattr("clampgrad._tools.audit.examination.MEMORY", 10)
    with clampgrad.audit() as report:
        torch.zeros(8).clamp(0, 1)
        torch.zeros(8).clamp_min(0)
    assert sorted(str(f.dead) for f in report) == ["8", "None"]


def test_one_call_in_so_many():
    x = leaf(*X)
    with clampgrad.audit(every=3) as report:
        for step in range(7):  # at 0, 3 and 6 the bound is at 0
            torch.clamp(x, 0 if step % 3 == 0 else 0.5, 6).sum().backward()
    (finding,) = report
    # One variant for each of 0 and 0.5 in the bounds' own bits; the
    # first call of each is looked at.
    assert finding.calls == 3 and finding.elements == 18 and finding.at_bound == 6
    assert x.grad.tolist()[2] == 7
    assert "one in 3 calls" in str(report)
    with pytest.raises(ValueError, match="at least 1"):
        clampgrad.audit(every=0)


def test_only_inside_the_block():
    x = leaf(1.0)
    x.clamp(0, 1)
    with pytest.raises(ZeroDivisionError), clampgrad.audit() as report:
        x.clamp(0, 1)
        raise ZeroDivisionError
    x.clamp(0, 1)
    assert [f.calls for f in report] == [1]


def test_compiled_code_is_seen():
    f = torch.compile(lambda x: x.clamp(0, 1).sum(), backend="eager")
    f(torch.rand(3))
    (finding,) = audited(f, leaf(0.0, 0.5))
    assert (finding.elements, finding.at_bound) == (2, 1)


def test_no_gradient_no_move():
    for nothing_recorded, x in ((torch.no_grad, leaf(0.0)), (torch.inference_mode, torch.zeros(1))):
        with nothing_recorded():
            (finding,) = audited(lambda x: x.clamp(0, 1).log(), x)
        assert finding.moved == {} and finding.at_bound == 1


def test_what_has_no_share():
    """A gradient of 0 does not count, nor does an infinite one."""
    (finding,) = audited(lambda x: clampgrad.clamp(x, 0, 6), leaf(0.0, 6.0))
    assert finding.moved["inclusive"] is None and finding.moved["joint"] == 0
    (finding,) = audited(lambda x: x.clamp(0, 1), leaf(0.5, 0.0), g=torch.tensor([torch.inf, 1.0]))
    assert finding.moved["half"] == pytest.approx(0.5) or finding.moved["half"] is None


def test_before_torch_2_6(monkeypatch):
    """It has no `torch.compiler.set_stance`, without which compiled code would go unseen."""
    monkeypatch.delattr(torch.compiler, "set_stance", raising=False)
    with pytest.raises(RuntimeError, match="audit: needs torch 2.6 or later"):
        clampgrad.audit()
