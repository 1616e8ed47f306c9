"""torch.library.opcheck passes on every overload, whatever the convention and the layout."""

import pytest
import torch

import clampgrad  # noqa: F401, it registers the operators
from common import OPERATORS
from oracle import CONVENTIONS

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
    """Arguments for every public overload: name -> list of (input, args, keywords)."""
    found = {}
    for operator in OPERATORS:
        bounds = BOUNDS[operator]
        plain = [(layout, bounds, {}) for layout in INPUTS]
        if operator == "clamp":
            plain += [("contiguous", (-1, None), {}), ("contiguous", (None, 1), {})]
        named = [("contiguous", bounds, {"gradient": "with_grad", "maximize": True})]
        if operator == "clamp":  # the conventions of the others are the same code
            named += [("contiguous", bounds, {"gradient": c}) for c in CONVENTIONS]
        for suffix in ("", "_", ".out"):
            found[f"clampgrad::{operator}{suffix}"] = plain + named
            found[f"clampgrad::{operator}_mingrad{suffix}"] = plain
    backward = [(layout, (-1, 1), {}) for layout in INPUTS]
    found["clampgrad::clamp_mingrad_backward"] = backward
    return found


SAMPLES = samples()


def public_overloads():
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if n.startswith("clampgrad::") and not n.startswith("clampgrad::_")}


def test_every_public_overload_has_samples():
    assert public_overloads() == set(SAMPLES)


@pytest.mark.parametrize("recorded", [False, True], ids=["constant", "recorded"])
@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name, recorded):
    operator, _, overload = name.removeprefix("clampgrad::").partition(".")
    function = getattr(getattr(torch.ops.clampgrad, operator), overload or "default")
    for layout, args, keywords in SAMPLES[name]:
        x = INPUTS[layout]().requires_grad_(recorded)
        if overload == "out":
            if recorded:
                continue  # out= carries no gradient, in torch neither
            keywords = keywords | {"out": torch.empty_like(x)}
        if operator.endswith("_") and recorded:
            x = x.clone()  # a leaf must not be changed in place
        if operator.endswith("_backward"):
            args = (x.detach().clone(), *args)
        torch.library.opcheck(function, (x, *args), keywords)
