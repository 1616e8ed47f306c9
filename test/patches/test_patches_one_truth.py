"""What the series writes into upstream's files says the same as our own operators.

Both sides are read from their files, as expressions, and evaluated at every point of the table.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_dtype import floating_types_and
from torch.testing._internal.common_utils import TestCase

import clampgrad
from clampgrad.patches.series import named
from clampgrad.patches.tree import formulas
from tools.verify.checks import cases
from tools.verify.text import patched

RELEASE = torch.__version__.split("+")[0]
SERIES = named("v2.13.0/joint")
OURS = (Path(__file__).parents[2] / "derivatives.yaml").read_text()
SCALAR = {"clamp_min": "min", "clamp_max": "max"}
TENSOR = {
    "clamp_min": ("clamp_min.Tensor", "self", "min"),
    "clamp_max": ("clamp_max.Tensor", "self", "max"),
    **{name: (name, "self", "other") for name in ("maximum", "minimum", "fmax", "fmin")},
}


class at:
    """What formulas call in C++; `grad.options()` keeps the dtype."""

    scalar_tensor = staticmethod(lambda value, options: torch.tensor(value, dtype=options))
    where = staticmethod(torch.where)


def masked_fill_inplace_if_safe(tensor, mask, value):
    return tensor.masked_fill(mask, value)


def evaluate(expression, names):
    """A formula of C++ as one of Python."""
    expression = expression.replace("::std::nullopt", "None").replace("at::", "at.")
    expression = expression.replace("grad.options()", "grad.dtype")
    helpers = {"at": at, "where": torch.where}
    helpers["masked_fill_inplace_if_safe"] = masked_fill_inplace_if_safe
    helpers["clamp_mingrad_backward"] = torch.ops.clampgrad.clamp_mingrad_backward
    return eval(expression, helpers | names)


def same(a, b):
    return torch.equal(a.nan_to_num(99.0), b.nan_to_num(99.0))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """derivatives.yaml of the installed torch with the series, or as it is where upstream has the rule."""
    patches = SERIES.patches if SERIES.fits(RELEASE) else []
    return patched(tmp_path_factory.mktemp("tree"), patches, RELEASE, None).yaml


def gradients(text, entry, names, args, g):
    """Of each of these arguments, by the formulas of a derivatives.yaml."""
    found = formulas(text, entry)
    return [evaluate(found[n], {"grad": g, **dict(zip(names, args))}) for n in names if n in found]


@pytest.mark.parametrize("operator", SCALAR)
def test_scalar_formulas_are_those_of_our_operators(theirs, operator):
    """clamp itself is in C++ alone: `verify` compiles it, and holds it to the table."""
    for _, _, (x, bound), g in cases(operator, "numbers"):
        names, args = ("self", SCALAR[operator]), (x, bound[0].item())
        (ours,) = gradients(OURS, f"{operator}_mingrad", names, args, g)
        (wanted,) = gradients(theirs, operator, names, args, g)
        assert same(ours, wanted)


@pytest.mark.parametrize("operator", TENSOR)
def test_tensor_formulas_are_those_of_joint(theirs, operator):
    """That of clamp is in C++, too."""
    entry, *names = TENSOR[operator]
    ((_, _, args, g),) = cases(operator, "tensors")
    leaves = [a.clone().requires_grad_() for a in args]
    y = getattr(clampgrad, operator)(*leaves, gradient="joint")
    ours = torch.autograd.grad(y, leaves, g)
    assert len(ours) == len(names)
    assert all(map(same, gradients(theirs, entry, names, args, g), ours))


TESTS = "".join(p.read_text() for p in SERIES.patches if p.name.endswith("-tests.patch"))


def instances(name):
    """A test of upstream's form, bound to a device and, where it asks for dtypes, to each of them."""

    def dtypes(*of):
        def decorate(test):
            test.dtypes = of
            return test

        return decorate

    added = [line[1:] for line in TESTS.splitlines() if re.match(r"\+(?!\+\+ )", line)]
    scope = {"torch": torch, "TestCase": TestCase, "dtypes": dtypes}
    scope["floating_types_and"] = floating_types_and
    exec("class Added(TestCase):\n" + "\n".join(added), scope)
    test = getattr(scope["Added"](name), name)
    for dtype in getattr(test, "dtypes", [None]):
        yield lambda dtype=dtype: test("cpu", *([dtype] if dtype else []))


@pytest.mark.parametrize("name", re.findall(r"^\+    def (test_\w+)\(", TESTS, re.MULTILINE))
def test_the_tests_of_the_series_tell_the_releases_apart(name):
    """Upstream, from 2.14 on, passes them as it is; before, it needs the series."""
    if RELEASE.startswith("2.14") and name == "test_clamp_tensor_subgradient":
        pytest.skip("fmax and fmin of 2.14 pass both gradients at a NaN; v2.14.0/fmax mends it")
    for run in instances(name):
        if SERIES.fits(RELEASE):
            with pytest.raises(AssertionError):
                run()
        else:
            run()
