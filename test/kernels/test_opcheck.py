"""torch.library.opcheck passes on every overload, whatever the convention and the layout."""

import re
from itertools import product

import pytest
import torch

import clampgrad  # noqa: F401, it registers the operators
from oracle import CONVENTIONS, EXTREMA

pytestmark = [
    pytest.mark.compiled(
        "it looks at kernels and nodes that the portable implementation does not have"
    ),
    pytest.mark.slow,
]

BOUNDS = {"clamp": (-1, 1), "clamp_min": (-1,), "clamp_max": (1,)}
INPUTS = {
    "contiguous": lambda: torch.tensor([-2.0, -1, 0, 1, 2]),
    "transposed": lambda: torch.linspace(-2, 2, 12).reshape(3, 4).t(),
    "sliced": lambda: torch.linspace(-2, 2, 12)[::2],
    "empty": lambda: torch.empty(0, 3),
    "0-dim": lambda: torch.tensor(1.0),
    "bfloat16": lambda: torch.linspace(-2, 2, 5, dtype=torch.bfloat16),
}

# A trace takes a third of a second, so each layout and each convention is tried with one overload:
# the others are instances of the same templates, and functionalization replaces in-place calls.
EVERY_LAYOUT = ("clamp", "clamp_mingrad", "clamp_mingrad_backward")
EVERY_CONVENTION = ("clamp", "clamp.Tensor", "clamp.Tensor_Scalar", "clamp.Scalar_Tensor")


def samples():
    """Bounds for every public overload: name -> list of them."""
    lo, hi = torch.full((1,), -1.0), torch.full((1,), 1.0)
    bounds_by_name = {"clamp_mingrad_backward": [(-1, 1)]}

    def add(name, bounds, kind=""):
        """The function, in place and out=, as schemas name them."""
        dot = f".{kind}" * bool(kind)
        for ending in (dot, f"_{dot}", f".{kind}_out" if kind else ".out"):
            bounds_by_name[name + ending] = [bounds]

    for operator, bounds in BOUNDS.items():
        for name in (operator, operator + "_mingrad"):
            add(name, bounds)
            add(name, [torch.full((1,), 1.0 * b) for b in bounds], "Tensor")
    for kind, bounds in (("Tensor_Scalar", (lo, 1)), ("Scalar_Tensor", (-1, hi))):
        add("clamp", bounds, kind)
        bounds_by_name[f"clamp_with_grad.{kind}"] = [bounds]
    bounds_by_name |= {"clamp_with_grad": [(-1, 1)], "clamp_with_grad.Tensor": [(lo, hi)]}
    bounds_by_name |= {
        "clamp": [(-1, 1), (-1, None), (None, 1)],
        "clamp.Tensor": [(lo, hi), (None, hi)],
    }
    for name in (*EXTREMA, "maximum_mingrad", "minimum_mingrad"):
        bounds_by_name |= {name: [[torch.ones(3, 1)]], name + ".out": [[torch.ones(3, 1)]]}
    return {f"clampgrad::{name}": bounds for name, bounds in bounds_by_name.items()}


SAMPLES = samples()


def keywords(name):
    maximized = {"maximize": True}
    if name in EVERY_CONVENTION:
        return [{}, *({"gradient": c} for c in CONVENTIONS), {"gradient": "with_grad"} | maximized]
    return [{}, maximized] if name.startswith("clamp_with_grad") else [{}]


def test_every_public_overload_has_samples():
    names = torch._C._dispatch_get_all_op_names()
    assert {n for n in names if re.match("clampgrad::(?!_)", n)} == set(SAMPLES)


@pytest.mark.parametrize("recorded", [False, True], ids=["constant", "recorded"])
@pytest.mark.parametrize("name", [n.removeprefix("clampgrad::") for n in SAMPLES])
def test_opcheck(name, recorded):
    operator, _, overload = name.partition(".")
    if recorded and overload.endswith("out"):
        pytest.skip("out= carries no gradient, in torch neither")
    function = getattr(getattr(torch.ops.clampgrad, operator), overload or "default")
    layouts = INPUTS if name in EVERY_LAYOUT else ["contiguous"]
    for layout, bounds, more in product(layouts, SAMPLES[f"clampgrad::{name}"], keywords(name)):
        if more and not (recorded and layout == "contiguous"):
            continue  # where no gradient is recorded, the names are checked and no more
        x = INPUTS[layout]().requires_grad_(recorded)
        if overload.endswith("out"):
            out = function(x, *bounds, **more, out=torch.empty(0, dtype=x.dtype))
            more = more | {"out": out}
        is_tensor = [isinstance(b, torch.Tensor) for b in bounds]
        args = [b.clone().requires_grad_(recorded) if t else b for b, t in zip(bounds, is_tensor)]
        if operator.endswith("_") and recorded:
            x = x.clone()  # a leaf must not be changed in place
        if operator.endswith("_backward"):
            args = (x.detach().clone(), *args)
        torch.library.opcheck(function, (x, *args), more)
