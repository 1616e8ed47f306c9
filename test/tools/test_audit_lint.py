"""The warnings of an audit: each appears for the programs it is about, and not for sound ones that look alike."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
from clampgrad._tools.audit import WARNINGS

BF16, FP16 = torch.bfloat16, torch.float16
TRIPLE = (0.0, 0.5, 1.0)


def values(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


def clamp(x):
    return torch.clamp(x, 0, 1)


def warnings_of(f, x, g=None, **keywords):
    """The names of the warnings in one forward and backward."""
    with clampgrad.audit(**keywords) as report:
        y = f(x)
        y.backward(torch.ones_like(y) if g is None else g)
    assert not report.skipped
    assert all(bool(finding.remedy) == bool(finding.warnings) for finding in report)
    found = [warning for finding in report for warning in finding.warnings]
    assert all(warning.name in WARNINGS for warning in found)
    return found


def advice(f, x):
    """The advice of the report for its one line with warnings."""
    with clampgrad.audit() as report:
        f(x).sum().backward()
    (remedy,) = filter(None, (finding.remedy for finding in report))
    assert " ".join(report.text().split()).count(f"Advice: {remedy}") == 1
    return remedy


def of(name, *args, **keywords):
    return [w for w in warnings_of(*args, **keywords) if w.name == name]


# ---- A bound that the dtype rounds to another meaningful value -----------------------------------

ROUNDS = {
    "1 - 1e-6 in bfloat16": (lambda x: x.clamp(max=1 - 1e-6), BF16, "max", 1.0, 0.99609375),
    "-1 + 1e-6 in bfloat16": (lambda x: x.clamp(min=-1 + 1e-6), BF16, "min", -1.0, -0.99609375),
    "1 + 1e-6 in float16": (lambda x: x.clamp_min(1 + 1e-6), FP16, "min", 1.0, 1 + 2**-10),
    "1e-8 in float16": (lambda x: torch.clamp(x, 1e-8), FP16, "min", 0.0, 2.0**-14),
    "a Tensor of one": (lambda x: torch.maximum(x, torch.tensor(1e-8)), FP16, "min", 0.0, 2.0**-14),
    "hardtanh": (lambda x: F.hardtanh(x, -1e-8, 1.0), FP16, "min", 0.0, -(2.0**-14)),
    "both": (lambda x: x.clamp(0.5, 0.5 + 1e-4), BF16, "both", 0.5, None),
}
KEEPS = {
    "1 - 1e-6 in float32": (lambda x: x.clamp(max=1 - 1e-6), torch.float32),
    "1e-8 in bfloat16": (lambda x: x.clamp(min=1e-8), BF16),
    "0.1, which no dtype has": (lambda x: x.clamp(0.1, 0.7), BF16),
    "0 and 1": (lambda x: x.clamp(0, 1), FP16),
    "equal as written": (lambda x: x.clamp(1, 1), FP16),
    "infinite as written": (lambda x: x.clamp(-torch.inf, torch.inf), FP16),
    "in float32, and back": (lambda x: x.float().clamp(max=1 - 1e-6).to(x.dtype), BF16),
    "a Tensor of many": (lambda x: torch.maximum(x, torch.full((2,), 1e-8, dtype=FP16)), FP16),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_bound_rounds(name):
    f, dtype, which, becomes, nearest = ROUNDS[name]
    (warning,) = of("bound-rounds", f, values(0.25, 0.75, dtype=dtype))
    assert (warning.evidence["bound"], warning.evidence["becomes"]) == (which, becomes)
    assert str(dtype).removeprefix("torch.") in warning.message
    if nearest is not None:
        assert warning.evidence["nearest"] == nearest
        assert torch.tensor(nearest, dtype=dtype).item() == nearest


@pytest.mark.parametrize("bound, dtype, shown, wider", [
    (1 - 1e-8, torch.float32, "0.99999994", torch.float64),
    (1 - 1e-8, BF16, "0.996", torch.float64),
    (1 - 1e-6, BF16, "0.996", torch.float32),
    (1 - 1e-6, FP16, "0.9995", torch.float32),
    (1e-50, torch.float32, "1.1754944e-38", torch.float64),
])  # fmt: skip
def test_the_bound_to_take_reads_back_as_itself(bound, dtype, shown, wider):
    """And the dtype to clamp in has the bound that was written."""
    which = "min" if bound < 0.5 else "max"
    remedy = advice(lambda x: x.clamp(**{which: bound}), values(0.75, dtype=dtype))
    (warning,) = of("bound-rounds", lambda x: x.clamp(**{which: bound}), values(0.75, dtype=dtype))
    assert torch.tensor(float(shown), dtype=dtype).item() == warning.evidence["nearest"]
    assert f"Take {which}={shown}, the nearest" in remedy
    assert remedy.endswith(f"or clamp in {str(wider).removeprefix('torch.')}.")
    kept, becomes = torch.tensor(bound, dtype=wider), warning.evidence["becomes"]
    assert kept != torch.tensor(becomes, dtype=wider)


@pytest.mark.parametrize("name", KEEPS)
def test_no_bound_rounds(name):
    f, dtype = KEEPS[name]
    assert not of("bound-rounds", f, values(0.25, 0.75, dtype=dtype))


# ---- A bound that is a singular point of what takes the result -----------------------------------


SINGULAR = {
    "log": (lambda x: x.clamp(min=0).log(), "min", "log"),
    "log_": (lambda x: (x * 1).clamp_(0, 1).log_(), "min", "log"),
    "sqrt": (lambda x: torch.sqrt(torch.clamp(x, 0, 1)), "min", "sqrt"),
    "rsqrt": (lambda x: F.relu(x).rsqrt(), "min", "rsqrt"),
    "reciprocal": (lambda x: nn.ReLU()(x).reciprocal(), "min", "reciprocal"),
    "acos": (lambda x: torch.acos(x.clamp(-0.9, 1)), "max", "acos"),
    "erfinv": (lambda x: torch.erfinv(F.hardtanh(x, -0.5, 1.0)), "max", "erfinv"),
    "1 / y": (lambda x: 1 / x.clamp(min=0), "min", "rdiv"),
    "x / y": (lambda x: torch.ones(3) / torch.maximum(x, torch.tensor(0.0)), "min", "div"),
    "div": (lambda x: torch.div(torch.ones(3), x.clamp_min(0)), "min", "div"),
    "power": (lambda x: x.clamp(min=0) ** 0.5, "min", "pow"),
    "negative power": (lambda x: x.clamp(min=0).pow(-1), "min", "pow"),
    "log(1 - y)": (lambda x: torch.log(1 - x.clamp(0.1, 1)), "max", "log"),
    "log(1 - y) in a cast": (lambda x: (1 - x.double().clamp(0.1, 1).float()).log(), "max", "log"),
    "through a view": (lambda x: x.clamp(min=0).view(3, 1).transpose(0, 1).log(), "min", "log"),
    "a norm by hand": (lambda x: x.clamp(min=0).square().sum().sqrt(), "min", "sqrt"),
    "exp, too large": (lambda x: x.clamp(max=100.0).exp(), "max", "exp"),
    "after another clamp": (lambda x: F.relu(x).clamp(max=9).log(), "min", "log"),
    "input by name": (lambda x: torch.log(input=x.clamp(min=0)), "min", "log"),
    "torch.special": (lambda x: torch.special.logit(x.clamp(0.1, 1)), "max", "logit"),
    "infinite in another dtype": (lambda x: (1e5 * x).clamp(max=1e6).half().log(), "max", "log"),
    "where": (lambda x: torch.where(x > 0, x.clamp(min=0).log(), x), "min", "log"),
}
SOUND = {
    "log of a guard": lambda x: x.clamp(min=1e-6).log(),
    "guarded later": lambda x: (x.clamp(min=0) + 1e-6).log(),
    "acos inside": lambda x: torch.acos(x.clamp(-0.9, 0.9)),
    "square": lambda x: x.clamp(min=0) ** 2,
    "the upper bound": lambda x: (2 - x.clamp(0.1, 1)).log(),
    "numerator": lambda x: x.clamp(min=0) / torch.ones(3),
    "changed in place": lambda x: (x * 1).clamp_(min=0).add_(torch.ones(3)).log(),
    "another Tensor": lambda x: x.clamp(min=0) + x.abs().add(1).log(),
    "a Tensor of many bounds": lambda x: torch.maximum(x, torch.full((3,), 0.1)).log(),
    "no gradient": lambda x: x * x.detach().clamp(min=0.1).log(),
    "moved by another clamp": lambda x: F.relu(x).clamp(min=0.1).log(),
    "a norm of rows": lambda x: x.clamp(min=0.1).view(1, 3).norm(dim=1),
    "complex": lambda x: (x.clamp(min=0) * 1j).abs() + x.clamp(min=0).to(torch.cfloat).abs(),
    "integers": lambda x: x + x.detach().clamp(min=0).to(torch.uint8) / 2,
    "an infinite bound": lambda x: x.clamp(0.1, torch.inf).log(),
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


def test_a_bound_that_becomes_singular_by_rounding():
    f = lambda x: torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))  # noqa: E731
    names = [w.name for w in warnings_of(f, values(0.5, dtype=BF16))]
    assert names.count("bound-rounds") == 2 and names.count("bound-singular") == 2
    assert not warnings_of(f, values(0.5))


def test_where_nothing_is_differentiated_the_value_alone_counts():
    x = torch.tensor([0.5])
    assert not of("bound-singular", lambda y: y * x.clamp(min=0).sqrt(), values(1.0))
    assert of("bound-singular", lambda y: y * x.clamp(min=0).log(), values(1.0))
    with torch.inference_mode(), clampgrad.audit() as report:
        x.clamp(min=0).log()
    assert not report.skipped


def test_a_gradient_that_was_chosen_to_block_it_is_a_guard():
    def root(gradient):
        return lambda x: clampgrad.clamp(x, min=0, gradient=gradient).sqrt()

    assert not of("bound-singular", root("min_norm"), values(0.0, 1.0))
    assert of("bound-singular", root("inclusive"), values(0.0, 1.0))
    # The value itself is infinite here, whatever the gradient.
    assert of("bound-singular", lambda x: clampgrad.clamp(x, min=0).log(), values(0.5))


def test_anomaly_mode_is_for_the_program():
    """The audit's own evaluations, which may be NaN, are no anomaly."""
    with torch.autograd.set_detect_anomaly(True):
        assert of("bound-singular", lambda x: x.clamp(min=-1).sqrt(), values(0.5))
        assert torch.is_anomaly_enabled()


def test_the_norm_is_as_this_release_has_it():
    zero = values(0.0, 0.0)
    (slope,) = torch.autograd.grad(zero.norm(), zero)
    found = of("bound-singular", lambda x: x.clamp(min=0).norm(), values(0.0, 0.0))
    assert bool(found) == (not slope.isfinite().all())


# ---- A gradient that is not finite ---------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_gradient_not_finite(bad):
    # One beyond, where it stops; one inside, where it goes on.
    found_for = partial(of, "gradient-not-finite", clamp, values(-1.0, 0.5, 0.5))
    (warning,) = found_for(torch.tensor([bad, bad, 1.0]))
    assert warning.evidence == {"arrived": 2, "left": 1, "gradients": 3}
    assert not found_for(torch.tensor([1e38, -0.0, 0.0]))


def test_a_clamp_after_the_singular_function():
    late = lambda x: x.rsqrt().clamp(max=1e6)  # noqa: E731
    (warning,) = of("gradient-not-finite", late, values(0.0, 1.0))
    assert warning.evidence == {"node": "RsqrtBackward0", "made": 1}
    assert "Clamp what is given to the function before" in advice(late, values(0.0, 1.0))
    for f in (
        late,
        lambda x: x.clamp(min=1e-12).rsqrt().mul(2).clamp_(max=2.0),
        lambda x: x.clamp_min(0),
    ):
        assert not of("gradient-not-finite", f, values(0.25, 4.0))


# ---- Conventions that differ ---------------------------------------------------------------------


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
    "no ties": (clamp, (0.25, 0.5, 2.0)),
    "a formula of its own": (F.relu6, TRIPLE),
    "named": (lambda x: clampgrad.clamp(x, 0, 1), TRIPLE),
    "pinned": (clampgrad.pin("inclusive")(clamp), TRIPLE),
    "both sides differentiated": (lambda x: torch.minimum(x, x * 1), TRIPLE),
}


@pytest.mark.parametrize("name", SAME)
def test_conventions_do_not_differ(name):
    f, numbers = SAME[name]
    assert not of("conventions-differ", f, values(*numbers))


@pytest.mark.parametrize(
    "others, g, warns", [(5000, 1, True), (20000, 1, False), (500, 1e-3, True)]
)
def test_how_much_is_a_difference(others, g, warns):
    """One element at a bound: the gradient that it receives is .014, .007 and .00004 of the norm."""
    weights = torch.tensor([g, *[1.0] * others])
    found = of("conventions-differ", lambda x: clamp(x) * weights, values(0.0, *[0.5] * others))
    assert bool(found) == warns


# ---- One line, one advice ------------------------------------------------------------------------

INCLUSIVE, MIN_NORM = 'gradient="inclusive"', 'gradient="min_norm"'


@pytest.mark.parametrize("f, x, names, said", [
    # The infinite derivative reaches the bound: what blocks it is the only gradient that is named.
    (lambda x: clamp(x).sqrt(), TRIPLE, MIN_NORM, "Move min off that point"),
    (lambda x: torch.clip(x, 0, 1).sqrt(), TRIPLE, MIN_NORM, "clampgrad.clamp("),
    (lambda x: x.clamp(1e-50, 1).sqrt(), TRIPLE, MIN_NORM, "Take min=1.1754944e-38"),
    (lambda x: clamp(x) * torch.tensor([torch.inf, 1, 1]), TRIPLE, MIN_NORM, "detect_anomaly"),
    # No gradient helps against an infinite value; after the bound has moved, the former one is right.
    (lambda x: clamp(x).log(), TRIPLE, INCLUSIVE, "Until then no gradient helps. Then name one"),
    (lambda x: clampgrad.clamp(x, 0, 1).log(), TRIPLE, None, "Until then no gradient helps."),
    # It arrives where every gradient lets it through.
    (lambda x: clamp(x) * torch.tensor([1, torch.inf, 1]), TRIPLE, INCLUSIVE, "detect_anomaly"),
    (clamp, TRIPLE, INCLUSIVE, "or a pin for the program"),
])  # fmt: skip
def test_one_gradient_for_all_that_was_found(f, x, names, said):
    remedy = advice(f, values(*x))
    assert said in remedy
    assert [g for g in (INCLUSIVE, MIN_NORM) if g in remedy] == [names] * bool(names)


def test_a_tie_of_two_differentiated_sides_blocks_nothing():
    """Each side gets half, so no convention stops the infinite derivative."""
    lo = torch.zeros(1, requires_grad=True)
    remedy = advice(lambda x: torch.maximum(x, lo).sqrt(), values(0.0, 1.0))
    assert "Until then no gradient helps." in remedy and MIN_NORM not in remedy


def test_relu_blocks_what_comes_after_it_on_every_release():
    assert not of("bound-singular", lambda x: F.relu(x).sqrt(), values(0.25, 1.0))


# ---- Code that nobody edits ----------------------------------------------------------------------

PACKAGE = {  # a warning, and a program for it
    "conventions-differ": ("lambda x: x.clamp(0, 1)", values(*TRIPLE)),
    "bound-singular": ("lambda x: x.clamp(min=0).sqrt()", values(0.25, 0.5)),
    "bound-rounds": ("lambda x: x.clamp(max=1 - 1e-6)", values(0.25, dtype=BF16)),
}


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "src"])
def test_the_advice_for_an_installed_package_is_a_pin(tmp_path, folder):
    """Its lines are not for its users to edit."""
    for name, (code, x) in PACKAGE.items():
        f = eval(compile(code, tmp_path / folder / "package.py", "eval"))
        remedy = advice(f, x)
        edit = "clampgrad.clamp(" in remedy or "or clamp in float32" in remedy
        assert edit == (folder == "src"), remedy
        if name != "bound-rounds":
            assert ("clampgrad.pin(" in remedy) == (folder != "src"), remedy
