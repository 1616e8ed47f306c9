"""The formulas that a series writes into upstream's derivatives.yaml, those of later releases
and our own operators are one.

Formulas are read from their files, as expressions, and evaluated at every point of the table.
(Those of clamp are in C++ alone: `verify` compiles them, and holds them to the table.)
"""

import re
import unittest
from collections import defaultdict
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch

import clampgrad
from lab.series import PATCHES, YAML, files_added, git, named
from oracle import TABLE
from testing.releases import OF_NO_CONVENTION

RELEASE = torch.__version__.split("+")[0]
SERIES = named("v2.13.0/joint")
ENTRIES = {  # (operator, kind of bounds): the entry of derivatives.yaml, and its arguments
    ("clamp_min", "numbers"): ("clamp_min", "self", "min"),
    ("clamp_max", "numbers"): ("clamp_max", "self", "max"),
    ("clamp_min", "tensors"): ("clamp_min.Tensor", "self", "min"),
    ("clamp_max", "tensors"): ("clamp_max.Tensor", "self", "max"),
    **{(n, "tensors"): (n, "self", "other") for n in ("maximum", "minimum", "fmax", "fmin")},
}
INCOMING = (1.0, -3.0, torch.inf, torch.nan)
exact = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
# What formulas call in C++; `grad.options()` keeps the dtype.
CALLED = {
    "at": SimpleNamespace(
        scalar_tensor=lambda value, dtype: torch.tensor(value, dtype=dtype), where=torch.where
    ),
    "where": torch.where,
    "masked_fill_inplace_if_safe": torch.masked_fill,
}


def points(operator, kind):
    """Yields (args, g): all points of the table at once, or those of each pair of numbers."""
    lots = defaultdict(list)
    every = (p for row in TABLE["operators"][operator]["rows"] for p in row["points"])
    for p, g in product(every, INCOMING):
        lots[str(p[1:]) if kind == "numbers" else ""].append((*p, g))
    for lot in lots.values():
        *args, g = torch.tensor(lot, dtype=torch.float64).unbind(1)
        yield args, g


def evaluate(expression, names):
    """A formula of C++ as one of Python."""
    expression = expression.replace("::std::nullopt", "None").replace("at::", "at.")
    return eval(expression.replace("grad.options()", "grad.dtype"), CALLED | names)


def formulas(text, name):
    """One entry of a derivatives.yaml as it is written, by argument."""
    entry = re.search(rf"^- name: {re.escape(name)}\(.*\n((?:  .*\n)+)", text, re.MULTILINE)
    return dict(re.findall(r"^  (\w+): (.*)$", entry[1], re.MULTILINE))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """derivatives.yaml by release: that of 2.13 with the series, the later ones as they are."""
    paths = PATCHES.glob("upstream/derivatives-*.yaml")
    text_by_release = {path.stem.partition("-")[2]: path.read_text() for path in paths}
    file = tmp_path_factory.mktemp("joint") / YAML
    file.parent.mkdir(parents=True)
    file.write_text(text_by_release["2.13"])
    for patch in SERIES.patches:
        git(file.parents[2], "apply", f"--include={YAML}", str(patch))
    return text_by_release | {"2.13": file.read_text()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("operator, kind", ENTRIES)
def test_the_formulas_are_one(texts, operator, kind, dtype):
    """Forward mode too, to the bit: at a NaN, beside an infinite tangent, and where two
    tangents of float16 overflow."""
    entry, *names = ENTRIES[operator, kind]
    if operator in ("fmax", "fmin"):  # at a NaN those of 2.14 are of no convention
        texts = {release: text for release, text in texts.items() if release != "2.14"}
    sides = [formulas(text, entry) for text in texts.values()]
    assert len(sides) > 1
    for args, g in points(operator, kind):
        args, g = [a.to(dtype) for a in args], g.to(dtype)
        if kind == "numbers":
            args[1] = args[1][0].item()
        variables = [a.clone().requires_grad_() for a in args if isinstance(a, torch.Tensor)]
        y = getattr(clampgrad, operator)(*variables, *args[len(variables) :], gradient="joint")
        gradients = torch.autograd.grad(y, variables, g)
        given = dict(zip(names, args), grad=g)
        for side in sides:
            for name, expected in zip(names, gradients):
                exact(evaluate(side[name], given), expected)
        for tangents in (
            ((g, g.flip(0)), [torch.full_like(g, 4e4)] * 2) if kind == "tensors" else ()
        ):
            given |= {f"{name}_p": given[name] for name in names}
            given |= {f"{name}_t": tangent for name, tangent in zip(names, tangents)}
            first, *others = (evaluate(side["result"], given) for side in sides)
            for other in others:
                exact(other, first)


def outcomes(tree, name):
    """The tests of a file that the series adds, each with what it fails with, as they
    would run in upstream's tree."""
    for patch in SERIES.patches:
        git(tree, "apply", f"--include={name}", str(patch))
    scope = {"__name__": "added"}
    exec((tree / name).read_text(), scope)
    (case,) = (v for k, v in scope.items() if re.fullmatch("Test.+CPU", k))
    for test in unittest.TestLoader().loadTestsFromTestCase(case):
        result = unittest.TestResult()
        test.run(result)
        yield test.id(), "".join(text for _, text in (*result.errors, *result.failures))


@pytest.mark.parametrize("name", [name for patch in SERIES.patches for name in files_added(patch)])
def test_the_tests_of_the_series_tell_the_releases_apart(name, tmp_path):
    """Upstream, from 2.14 on, passes them as it is; before, it needs the series."""
    errors = dict(outcomes(tmp_path, name))
    assert len(errors) >= 5
    for test, error in errors.items():
        if not (OF_NO_CONVENTION and "test_clamp_tensor_subgradient_cpu" in test):
            assert ("AssertionError" in error) == SERIES.fits(RELEASE) == bool(error), (test, error)
