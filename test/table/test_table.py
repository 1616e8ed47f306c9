"""Every row of conventions.yaml holds, in every form of a call and in
every way to differentiate it.

testing/matrix draws from all its cells; these run whole.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch

import clampgrad
from oracle import EXACT, PSEUDO, TABLE, encode_position
from testing.cases import sample_if_portable
from testing.matrix.reference import ARGUMENTS, GRADIENTS
from testing.matrix.run import FORMS, calls, check_all

OURS = [name for name, form in FORMS.items() if not (form.pin or form.module or form.writes)]
# Each kind once, in both orders; the rest of them, which take as long, are thorough.
WAYS = ("dual tensors", "vjp vmap", "vmap jvp")
OTHER_WAYS = ("vjp", "jvp", "vmap vjp", "jvp vmap")


def calls_of(*operator_and_gradient):
    return [c for c in calls() if (c.operator, (c.gradient, c.maximize)) == operator_and_gradient]


def comparisons(operator, kind):
    """How the arguments of the calls compare, element by element."""
    codes = set()
    for call in (call for call in calls() if call.gradient == "joint" and call.args[0].floating):
        name, given = call.reduced()
        if name == operator and call.numbers == (kind == "numbers") and not call.mixed:
            args = call.fill(call.tensors)
            args = [torch.as_tensor(args[i], dtype=torch.float64) for i in given]
            codes |= {*encode_position(*args).flatten().tolist()}
    return codes


@pytest.mark.parametrize("operator", ARGUMENTS)
def test_every_row_is_among_the_calls(operator):
    for kind, row in product(("numbers", "tensors"), TABLE["operators"][operator]["rows"]):
        if kind in row:
            points = [torch.tensor(point, dtype=torch.float64) for point in row["points"]]
            assert {int(encode_position(*point)) for point in points} <= comparisons(operator, kind)


@pytest.mark.parametrize(
    "operator, gradient, form",
    sample_if_portable(125, product(ARGUMENTS, GRADIENTS, OURS)),
    ids=str,
)
def test_forms(operator, gradient, form):
    """With several incoming gradients: blocked must mean 0 and open must mean g, whatever g is."""
    for call in calls_of(operator, gradient):
        check_all(replace(call, form=form, seed=seed) for seed in range(3))


@pytest.mark.parametrize(
    "operator, gradient, way",
    [
        *sample_if_portable(60, product(ARGUMENTS, GRADIENTS, WAYS)),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in product(ARGUMENTS, GRADIENTS, OTHER_WAYS)
        ),
    ],
    ids=str,
)
def test_ways_to_differentiate(operator, gradient, way):
    for call in calls_of(operator, gradient):
        if call.args[0].dtype == "float32" and call.args[0].layout == "plain":
            check_all(replace(call, form=form, context=way) for form in ("function", "in place"))


def test_the_package_knows_the_conventions_of_the_table():
    assert clampgrad.CONVENTIONS == EXACT + PSEUDO
