"""The formulas that the series write into upstream's files equal our own operators.

Both sides are read from their files, as expressions, and evaluated at every point of the table.
"""

import re
import unittest
from pathlib import Path

import pytest
import torch

import clampgrad
from common import OF_NO_CONVENTION
from lab.series import PATCHES, YAML, files_added, git, named
from lab.verify.gradients import points
from lab.verify.upstream_files import patched

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
    """The functions that formulas call in C++; `grad.options()` keeps the dtype."""

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


def formulas(text, name):
    """One entry of derivatives.yaml as it is written, by argument."""
    found = re.search(r"^- name: " + re.escape(name) + r"\(.*\n((?:  .*\n)+)", text, re.MULTILINE)
    lines = found.group(1).splitlines() if found else []
    pairs = (line.strip().split(": ", 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def same(a, b):
    return torch.equal(a.nan_to_num(99.0), b.nan_to_num(99.0))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """derivatives.yaml of the installed torch with the series, or as it is where upstream has the rule."""
    patches = SERIES.patches if SERIES.fits(RELEASE) else []
    return patched(tmp_path_factory.mktemp("tree"), patches, RELEASE)[YAML]


def gradients(text, entry, names, args, g):
    """The gradient of each argument, by the formulas of a derivatives.yaml."""
    found = formulas(text, entry)
    return [evaluate(found[n], {"grad": g, **dict(zip(names, args))}) for n in names if n in found]


@pytest.mark.parametrize("operator", SCALAR)
def test_scalar_formulas_are_those_of_our_operators(theirs, operator):
    """clamp itself is in C++ alone: `verify` compiles it, and holds it to the table."""
    for (x, bound), g in points(operator, "numbers"):
        names, args = ("self", SCALAR[operator]), (x, bound[0].item())
        (ours,) = gradients(OURS, f"{operator}_mingrad", names, args, g)
        (wanted,) = gradients(theirs, operator, names, args, g)
        assert same(ours, wanted)


@pytest.mark.parametrize("operator", TENSOR)
def test_tensor_formulas_are_those_of_joint(theirs, operator):
    """That of clamp is in C++, too."""
    if OF_NO_CONVENTION and operator in ("fmax", "fmin"):
        pytest.skip("at a NaN they are of no convention")
    entry, *names = TENSOR[operator]
    ((args, g),) = points(operator, "tensors")
    leaves = [a.clone().requires_grad_() for a in args]
    y = getattr(clampgrad, operator)(*leaves, gradient="joint")
    ours = torch.autograd.grad(y, leaves, g)
    assert len(ours) == len(names)
    assert all(map(same, gradients(theirs, entry, names, args, g), ours))


FORMULAS_OF = {  # by release; from 2.14 on they say the same, but for 2.14's fmax and fmin
    path.stem.partition("-")[2]: path.read_text()
    for path in PATCHES.glob("upstream/derivatives-*.yaml")
}
LATER = sorted((r for r in FORMULAS_OF if r != "2.13"), key=lambda r: int(r.partition(".")[2]))


@pytest.fixture(scope="module")
def joint(tmp_path_factory):
    """derivatives.yaml of 2.13 with the series, whichever torch is installed."""
    tree = tmp_path_factory.mktemp("joint")
    (tree / YAML).parent.mkdir(parents=True)
    (tree / YAML).write_text(FORMULAS_OF["2.13"])
    for patch in SERIES.patches:
        git(tree, "apply", f"--include={YAML}", str(patch))
    return (tree / YAML).read_text()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("operator", TENSOR)
def test_the_formulas_of_joint_give_what_those_of_2_15_give(joint, operator, dtype):
    """Forward mode too, to the bit: at a NaN, beside an infinite tangent, and where two tangents of float16 overflow."""
    entry, *names = TENSOR[operator]
    for release in LATER:
        if release == "2.14" and operator in ("fmax", "fmin"):
            continue
        sides = [formulas(text, entry) for text in (joint, FORMULAS_OF[release])]
        for args, g in points(operator, "tensors"):
            given = dict(zip(names, (a.to(dtype) for a in args)), grad=g.to(dtype))
            for one, other in ((g, g.flip(0)), (torch.full_like(g, 4e4),) * 2):
                given |= dict(zip((f"{n}_t" for n in names), (one.to(dtype), other.to(dtype))))
                given |= {f"{n}_p": given[n] for n in names}
                for line in (*names, "result"):
                    ours, theirs = (evaluate(side[line], given) for side in sides)
                    assert ours.dtype == theirs.dtype and same(ours, theirs), line


FILES = [name for patch in SERIES.patches for name in files_added(patch)]


def outcomes(tree, name):
    """{test: the error it ends with, or None}, of a file of tests as it would run in upstream's tree."""
    for patch in SERIES.patches:
        git(tree, "apply", f"--include={name}", str(patch))
    scope = {"__name__": "added"}
    exec((tree / name).read_text(), scope)
    (case,) = (v for k, v in scope.items() if re.fullmatch("Test.+CPU", k))
    for test in unittest.TestLoader().getTestCaseNames(case):
        result = unittest.TestResult()
        case(test).run(result)
        yield test, "".join(text for _, text in (*result.errors, *result.failures))


@pytest.mark.parametrize("name", FILES)
def test_the_tests_of_the_series_tell_the_releases_apart(name, tmp_path):
    """Upstream, from 2.14 on, passes them as it is; before, it needs the series."""
    found = dict(outcomes(tmp_path, name))
    assert len(found) >= 5
    for test, error in found.items():
        if OF_NO_CONVENTION and test.startswith("test_clamp_tensor_subgradient_cpu"):
            continue
        assert ("AssertionError" in error) == SERIES.fits(RELEASE) == bool(error), (test, error)
