"""torch.library.opcheck passes on every overload, whatever the convention and the layout."""

import pytest
import torch

import clampgrad  # noqa: F401, it registers the operators
from common import OPERATORS
from oracle import CONVENTIONS

pytestmark = pytest.mark.compiled(
    "it looks at kernels and nodes that the portable implementation does not have"
)

BOUNDS = {"clamp": (-1, 1), "clamp_min": (-1,), "clamp_max": (1,)}


def inputs():
    yield "contiguous", lambda: torch.tensor([-2.0, -1, 0, 1, 2])
    yield "transposed", lambda: torch.linspace(-2, 2, 12).reshape(3, 4).t()
    yield "sliced", lambda: torch.linspace(-2, 2, 12)[::2]
    yield "empty", lambda: torch.empty(0, 3)
    yield "0-dim", lambda: torch.tensor(1.0)
    yield "bfloat16", lambda: torch.linspace(-2, 2, 5, dtype=torch.bfloat16)


INPUTS = dict(inputs())


def samples():
    """Arguments for every public overload: name -> list of (layout of the input, args, keywords)."""
    found = {}
    for operator in OPERATORS:
        bounds = BOUNDS[operator]
        plain = [(layout, bounds, {}) for layout in INPUTS]
        tensors = [("contiguous", [torch.full((1,), 1.0 * b) for b in bounds], {})]
        if operator == "clamp":
            plain += [("contiguous", (-1, None), {}), ("contiguous", (None, 1), {})]
            tensors += [("contiguous", (None, torch.tensor(1.0)), {})]
        for suffix, tensor in (("", ".Tensor"), ("_", ".Tensor"), (".out", ".Tensor_out")):
            overload = suffix.replace(".out", "")
            found[f"clampgrad::{operator}{suffix}"] = named(operator, plain)
            found[f"clampgrad::{operator}{overload}{tensor}"] = named(operator, tensors)
            found[f"clampgrad::{operator}_mingrad{suffix}"] = plain
            found[f"clampgrad::{operator}_mingrad{overload}{tensor}"] = tensors
    lo, hi = torch.full((1,), -1.0), torch.full((1,), 1.0)
    for suffix, end in (("", ""), ("_", ""), ("", "_out")):
        for overload, bounds in (("Tensor_Scalar", (lo, 1)), ("Scalar_Tensor", (-1, hi))):
            found[f"clampgrad::clamp{suffix}.{overload}{end}"] = named(
                "clamp", [("contiguous", bounds, {})]
            )
    for overload, bounds in (
        ("", (-1, 1)),
        (".Tensor", (lo, hi)),
        (".Tensor_Scalar", (lo, 1)),
        (".Scalar_Tensor", (-1, hi)),
    ):
        found[f"clampgrad::clamp_with_grad{overload}"] = [
            ("contiguous", bounds, keywords) for keywords in ({}, {"maximize": True})
        ]
    for operator in ("maximum", "minimum", "fmax", "fmin"):
        plain = [("contiguous", [torch.ones(3, 1)], {}), ("0-dim", [torch.tensor(1.0)], {})]
        for suffix in ("", ".out"):
            found[f"clampgrad::{operator}{suffix}"] = plain
            if operator in ("maximum", "minimum"):
                found[f"clampgrad::{operator}_mingrad{suffix}"] = plain
    backward = [(layout, (-1, 1), {}) for layout in INPUTS]
    found["clampgrad::clamp_mingrad_backward"] = backward
    return found


def named(operator, plain):
    """The same with every convention, for clamp alone: the others are the same code."""
    layout, bounds, _ = plain[0]
    conventions = CONVENTIONS if operator == "clamp" else ("half",)
    more = [{"gradient": c} for c in conventions] + [{"gradient": "with_grad", "maximize": True}]
    return plain + [(layout, bounds, keywords) for keywords in more]


SAMPLES = samples()

# A trace by AOTAutograd takes a third of a second. Every overload is traced on its first sample. These are
# traced on all their samples without keywords, and those below on the others too: the rest are instances of
# the same templates, and in place is what functionalization makes of it.
ALL_PLAIN = ("clamp_", "clamp_mingrad", "clamp_mingrad.Tensor", "clamp_mingrad_backward", "maximum")
ALL = ("clamp", "clamp.Tensor", "clamp.Tensor_Scalar", "clamp.Scalar_Tensor", "clamp_with_grad")


def traced(name, sample):
    *_, keywords = sample
    every = ALL if keywords else ALL + ALL_PLAIN
    return sample is SAMPLES[name][0] or name.removeprefix("clampgrad::") in every


def checks_of(name, sample):
    rest = ("test_schema", "test_autograd_registration", "test_faketensor")
    return (*rest, "test_aot_dispatch_dynamic") if traced(name, sample) else rest


def public_overloads():
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if n.startswith("clampgrad::") and not n.startswith("clampgrad::_")}


def test_every_public_overload_has_samples():
    assert public_overloads() == set(SAMPLES)


def test_every_layout_and_every_convention_is_traced():
    found = [s for name in SAMPLES for s in SAMPLES[name] if traced(name, s)]
    assert {layout for layout, _, _ in found} == set(INPUTS)
    assert {k["gradient"] for _, _, k in found if "gradient" in k} == set(CONVENTIONS)


@pytest.mark.parametrize("recorded", [False, True], ids=["constant", "recorded"])
@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name, recorded):
    operator, _, overload = name.removeprefix("clampgrad::").partition(".")
    function = getattr(getattr(torch.ops.clampgrad, operator), overload or "default")
    for sample in SAMPLES[name]:
        layout, args, keywords = sample
        if keywords and not recorded:
            continue  # where no gradient is recorded, the names are checked and no more
        x = INPUTS[layout]().requires_grad_(recorded)
        if overload.endswith("out"):
            if recorded:
                continue  # out= carries no gradient, in torch neither
            out = function(x, *args, **keywords, out=torch.empty(0, dtype=x.dtype))
            keywords = keywords | {"out": out}
        args = [
            a.clone().requires_grad_(recorded) if isinstance(a, torch.Tensor) else a for a in args
        ]
        if operator.endswith("_") and recorded:
            x = x.clone()  # a leaf must not be changed in place
        if operator.endswith("_backward"):
            args = (x.detach().clone(), *args)
        torch.library.opcheck(function, (x, *args), keywords, test_utils=checks_of(name, sample))
