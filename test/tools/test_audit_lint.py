"""The warnings of an audit: each appears for the programs it is about, and not for
sound ones that look alike."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import clampgrad
from clampgrad._tools.audit.consumers import Consumers

BF16 = torch.bfloat16
FP16 = torch.float16
FP32 = torch.float32
TRIPLE = (0.0, 0.5, 1.0)


def values(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


def clamp(x):
    return torch.clamp(x, 0, 1)


def of(name, f, x, g=None):
    """The warnings of this name in one forward and backward."""
    with clampgrad.audit() as report:
        y = f(x)
        y.backward(torch.ones_like(y) if g is None else g)
    assert not report.skipped
    assert all(bool(finding.remedy) == bool(finding.warnings) for finding in report)
    return [w for finding in report for w in finding.warnings if w.name == name]


def advice(f, x):
    """The advice of the report for its one line with warnings."""
    with clampgrad.audit() as report:
        f(x).sum().backward()
    (remedy,) = filter(None, (finding.remedy for finding in report))
    assert " ".join(report.text().split()).count(f"Advice: {remedy}") == 1
    return remedy


def test_results_that_are_gone_are_forgotten():
    """The audit of a long run must not grow with its calls."""
    consumers = Consumers()
    alive = torch.zeros(1)
    for result in (*(torch.zeros(1) for _ in range(100)), alive):
        consumers.begin(result, [(None, 0.0)])
    del result
    assert len(consumers._traces) == 1


@pytest.mark.parametrize("f", [lambda y: y.type(), lambda y: y.to(torch.int)])
def test_a_result_that_is_no_floating_tensor_ends_a_trace(f):
    x = values(0.0, 1.0)
    with clampgrad.audit() as report:
        y = clamp(x)
        f(y)
        y.sum().backward()
    assert not report.skipped


@pytest.mark.parametrize(
    "which, bound, dtype, becomes, nearest, wider",
    [
        ("max", 1 - 1e-6, BF16, 1, "0.996", "float32"),
        ("max", 1 - 1e-8, FP32, 1, "0.99999994", "float64"),
        ("min", 1 + 1e-6, FP16, 1, "1.001", "float32"),
        ("min", -1 + 1e-6, BF16, -1, "-0.996", "float32"),
        ("min", 1e-8, FP16, 0, "6.104e-05", "float32"),
        ("min", -1e-8, FP16, 0, "-6.104e-05", "float32"),
        ("min", 1e-50, FP32, 0, "1.1754944e-38", "float64"),
    ],
)
def test_bound_rounds(which, bound, dtype, becomes, nearest, wider):
    """The advice names the nearest bound, which reads back as itself, and a
    dtype that has the one written."""
    program = partial(torch.clamp, **{which: bound}), values(0.25, 0.75, dtype=dtype)
    (warning,) = of("bound-rounds", *program)
    assert (warning.evidence["bound"], warning.evidence["becomes"]) == (which, becomes)
    assert str(dtype).removeprefix("torch.") in warning.message
    assert torch.tensor(float(nearest), dtype=dtype).item() == warning.evidence["nearest"]
    remedy = advice(*program)
    assert f"Take {which}={nearest}, the nearest" in remedy
    assert remedy.endswith(f"or clamp in {wider}.")


def test_both_bounds_round():
    f, x = lambda x: x.clamp(0.5, 0.5 + 1e-4), values(0.25, dtype=BF16)
    assert [w.evidence["bound"] for w in of("bound-rounds", f, x)] == ["both"]
    assert "Take bounds further apart, or clamp in float32." in advice(f, x)


KEEPS = {
    "0.1, which no dtype has": (lambda x: x.clamp(0.1, 0.7), BF16),
    "0 and 1": (lambda x: x.clamp(0, 1), FP16),
    "infinite as written": (lambda x: x.clamp(-torch.inf, torch.inf), FP16),
    "in float32, and back": (lambda x: x.float().clamp(max=1 - 1e-6).to(x.dtype), BF16),
    "a Tensor of many": (lambda x: torch.maximum(x, torch.full((2,), 1e-8, dtype=FP16)), FP16),
}


@pytest.mark.parametrize("name", KEEPS)
def test_no_bound_rounds(name):
    f, dtype = KEEPS[name]
    assert not of("bound-rounds", f, values(0.25, 0.75, dtype=dtype))


# Bounds that are a singular point of what takes the result, and what it is.
SINGULAR = {
    "log": (lambda x: x.clamp(min=0).log(), "min", "log"),
    "log_": (lambda x: (x * 1).clamp_(0, 1).log_(), "min", "log"),
    "1 / y": (lambda x: 1 / x.clamp(min=0), "min", "rdiv"),
    "x / y": (lambda x: torch.ones(3) / torch.maximum(x, torch.tensor(0.0)), "min", "div"),
    "power": (lambda x: x.clamp(min=0) ** 0.5, "min", "pow"),
    "log(1 - y) in a cast": (lambda x: (1 - x.double().clamp(0.1, 1).float()).log(), "max", "log"),
    "through a view": (lambda x: x.clamp(min=0).view(3, 1).transpose(0, 1).log(), "min", "log"),
    "a norm by hand": (lambda x: x.clamp(min=0).square().sum().sqrt(), "min", "sqrt"),
    "exp, too large": (lambda x: x.clamp(max=100.0).exp(), "max", "exp"),
    "after another clamp": (lambda x: F.relu(x).clamp(max=9).log(), "min", "log"),
    "input by name": (lambda x: torch.log(input=x.clamp(min=0)), "min", "log"),
    "torch.special": (lambda x: torch.special.logit(x.clamp(0.1, 1)), "max", "logit"),
    "infinite in another dtype": (lambda x: (1e5 * x).clamp(max=1e6).half().log(), "max", "log"),
    "rounded": (lambda x: x.bfloat16().clamp(max=1 - 1e-6).atanh(), "max", "atanh"),
    "not differentiated": (lambda x: x * x.detach().clamp(min=0).log(), "min", "log"),
    "passed on by name": (lambda x: clampgrad.clamp(x, 0, gradient="half").sqrt(), "min", "sqrt"),
    "blocked too late": (lambda x: clampgrad.clamp(x, min=0).log(), "min", "log"),
}
SOUND = {
    "guarded later": lambda x: (x.clamp(min=0) + 1e-6).log(),
    "numerator": lambda x: x.clamp(min=0) / torch.ones(3),
    "changed in place": lambda x: (x * 1).clamp_(min=0).add_(torch.ones(3)).log(),
    "another Tensor": lambda x: x.clamp(min=0) + x.abs().add(1).log(),
    "a Tensor of many bounds": lambda x: torch.maximum(x, torch.full((3,), 0.1)).log(),
    "moved by another clamp": lambda x: F.relu(x).clamp(min=0.1).log(),
    "a norm of rows": lambda x: x.clamp(min=0.1).view(1, 3).norm(dim=1),
    "complex": lambda x: (x.clamp(min=0) * 1j).abs() + x.clamp(min=0).to(torch.cfloat).abs(),
    "integers": lambda x: x + x.detach().clamp(min=0).to(torch.uint8) / 2,
    "an infinite bound": lambda x: x.clamp(0.1, torch.inf).log(),
    "not rounded": lambda x: x.clamp(max=1 - 1e-6).atanh(),
    "no derivative": lambda x: x * x.detach().clamp(min=0).sqrt(),
    "blocked by name": lambda x: clampgrad.clamp(x, min=0).sqrt(),
    "blocked on every release": lambda x: F.relu(x).sqrt(),
    "a norm, whose derivative is 0": lambda x: x.clamp(min=0).norm(),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_bound_singular(name):
    f, which, function = SINGULAR[name]
    (warning,) = of("bound-singular", f, values(0.25, 0.5, 0.75))
    assert (warning.evidence["bound"], warning.evidence["function"]) == (which, function)
    assert warning.evidence["file"] == __file__
    # The numbers confirm it: with every element there, values or gradients are not finite.
    x = values(*[-2.0 if which == "min" else 200.0] * 3)
    assert not f(x).isfinite().all() or of("gradient-not-finite", f, x)


@pytest.mark.parametrize("name", SOUND)
def test_no_bound_singular(name):
    assert not of("bound-singular", SOUND[name], values(0.25, 0.5, 0.75))


def test_anomaly_mode_is_for_the_program():
    """The audit's own evaluations, which may be NaN, are no anomaly."""
    with torch.autograd.set_detect_anomaly(True):
        assert of("bound-singular", lambda x: x.clamp(min=-1).sqrt(), values(0.5))
        assert torch.is_anomaly_enabled()


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_gradient_not_finite(bad):
    # One beyond, where it stops; one inside, where it goes on.
    warns = partial(of, "gradient-not-finite", clamp, values(-1.0, 0.5, 0.5))
    (warning,) = warns(torch.tensor([bad, bad, 1.0]))
    assert warning.evidence == {"arrived": 2, "left": 1, "gradients": 3}
    assert not warns(torch.tensor([1e38, -0.0, 0.0]))


def test_a_clamp_after_the_singular_function():
    late = lambda x: x.rsqrt().clamp(max=1e6)  # noqa: E731
    (warning,) = of("gradient-not-finite", late, values(0.0, 1.0))
    assert warning.evidence == {"node": "RsqrtBackward0", "made": 1}
    assert "Clamp what is given to the function before" in advice(late, values(0.0, 1.0))
    assert not of("gradient-not-finite", late, values(0.25, 4.0))
    early = lambda x: x.clamp(min=1e-12).rsqrt().mul(2).clamp_(max=2.0)  # noqa: E731
    assert not of("gradient-not-finite", early, values(0.25, 4.0))


def test_conventions_differ():
    (warning,) = of("conventions-differ", clamp, values(*[0.0] * 2, *[0.5] * 6))
    assert warning.evidence["relative_norm"] == pytest.approx((2 / 8) ** 0.5)
    assert warning.evidence["sign_changes"] == 2 and warning.evidence["gradients"] == 8
    # A gradient of 0 changes no sign.
    g = torch.tensor([0.0, -3.0, 4.0])
    (warning,) = of("conventions-differ", clamp, values(0.0, 0.0, 0.5), g=g)
    assert warning.evidence["sign_changes"] == 1
    assert warning.evidence["relative_norm"] == pytest.approx(3 / 5)


SAME = {
    "a formula of its own": F.relu6,
    "named": lambda x: clampgrad.clamp(x, 0, 1),
    "pinned": clampgrad.pin("inclusive")(clamp),
    "both sides differentiated": lambda x: torch.minimum(x, x * 1),
}


@pytest.mark.parametrize("name", SAME)
def test_conventions_do_not_differ(name):
    assert not of("conventions-differ", SAME[name], values(*TRIPLE))


def test_how_much_is_a_difference():
    """One element at a bound: the gradient that it receives is .014,
    .007 and .00004 of the norm."""
    for others, g, warns in (5000, 1, True), (20000, 1, False), (500, 1e-3, True):
        weights = torch.tensor([g, *[1.0] * others])
        x = values(0.0, *[0.5] * others)
        assert bool(of("conventions-differ", lambda x: clamp(x) * weights, x)) == warns


INCLUSIVE = 'gradient="inclusive"'
MIN_NORM = 'gradient="min_norm"'


@pytest.mark.parametrize(
    "f, x, names, sentence",
    [
        # The infinite derivative reaches the bound: what blocks it is the
        # only gradient that is named.
        (lambda x: clamp(x).sqrt(), TRIPLE, MIN_NORM, "Move min off that point"),
        (lambda x: torch.clip(x, 0, 1).sqrt(), TRIPLE, MIN_NORM, "clampgrad.clamp("),
        (lambda x: x.clamp(1e-50, 1).sqrt(), TRIPLE, MIN_NORM, "Take min=1.1754944e-38"),
        (lambda x: clamp(x) * torch.tensor([torch.inf, 1, 1]), TRIPLE, MIN_NORM, "detect_anomaly"),
        # No gradient helps against an infinite value; after the bound has
        # moved, the former one is right.
        (
            lambda x: clamp(x).log(),
            TRIPLE,
            INCLUSIVE,
            "Until then no gradient helps. Then name one",
        ),
        (lambda x: clampgrad.clamp(x, 0, 1).log(), TRIPLE, None, "Until then no gradient helps."),
        # It arrives where every gradient lets it through.
        (lambda x: clamp(x) * torch.tensor([1, torch.inf, 1]), TRIPLE, INCLUSIVE, "detect_anomaly"),
        (clamp, TRIPLE, INCLUSIVE, "or a pin for the program"),
        # Each of two differentiated sides gets half at a tie, so no gradient blocks it.
        (
            lambda x: torch.maximum(x, values(0.0)).sqrt(),
            TRIPLE,
            None,
            "Until then no gradient helps.",
        ),
    ],
)
def test_one_gradient_for_all_that_was_found(f, x, names, sentence):
    remedy = advice(f, values(*x))
    assert sentence in remedy
    assert [g for g in (INCLUSIVE, MIN_NORM) if g in remedy] == [names] * bool(names)


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "src"])
def test_the_advice_for_an_installed_package_is_a_pin(tmp_path, folder):
    """Its lines are not for its users to edit."""
    code = "lambda x: x.clamp(0, 1 - 1e-6).sqrt()"
    f = eval(compile(code, tmp_path / folder / "package.py", "eval"))
    remedy = advice(f, values(*TRIPLE, dtype=BF16))
    edits = ["clampgrad.clamp(" in remedy, "or clamp in float32" in remedy]
    pins = ["clampgrad.pin(" in remedy, "or call the package in float32" in remedy]
    assert (edits, pins) == ([folder == "src"] * 2, [folder != "src"] * 2), remedy
