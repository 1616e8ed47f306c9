"""Each row of the table of changes, on the installed torch: its program returns what the record
says of this release, and a pin does what the row says."""

import math

import pytest
import torch

import clampgrad
import records
from clampgrad._contract.changes import CHANGES
from lab.changes.kinks import call_scripted, clamp_alone, clamp_beside
from lab.changes.record import has_what_is_called, measure_result, side_of
from lab.changes.reproducers import REPRODUCERS
from testing.releases import RELEASE

RESULTS = {row["id"]: row for row in records.read("changes")["rows"]}
INSTALLED = ".".join(map(str, RELEASE))
ROWS_THAT_RUN = pytest.mark.parametrize(
    "row", [row for row in CHANGES if has_what_is_called(row, INSTALLED)]
)


def distance(first, second):
    """The largest between two results: infinite if only one is NaN, or an error."""
    if isinstance(first, str) or isinstance(second, str):
        return 0 if first == second else math.inf
    apart = [
        math.inf if math.isnan(a) != math.isnan(b) else 0 if math.isnan(a) else abs(a - b)
        for a, b in zip(first, second)
    ]
    return max(apart)


def find_side(row, result):
    """On which side of the change a result is. Processors round in bfloat16 differently, and so
    neither side is exact; what is on none is shown as it is."""
    to_before, to_since = (distance(result, RESULTS[row][side]) for side in ("before", "since"))
    if min(to_before, to_since) * 10 >= max(to_before, to_since):
        return result
    return "before" if to_before < to_since else "since"


def test_every_row_has_a_program_and_two_results():
    assert [*RESULTS] == [*CHANGES] and {*REPRODUCERS} == {*CHANGES}
    for row in CHANGES:
        assert {find_side(row, RESULTS[row][side]) for side in ("before", "since")} == {
            "before",
            "since",
        }


@ROWS_THAT_RUN
def test_results_are_those_of_the_release(row):
    assert find_side(row, measure_result(REPRODUCERS[row])) == side_of(row, INSTALLED)


@ROWS_THAT_RUN
@pytest.mark.parametrize("convention", ["inclusive", "joint"])
def test_a_pin_does_what_the_row_says(row, convention):
    """`inclusive` restores what came before 2.14, and `joint` is 2.15's, on every release."""
    with clampgrad.pin(convention):
        side = find_side(row, measure_result(REPRODUCERS[row]))
    match CHANGES[row].pin:
        case "restored":
            assert side == side_of(row, "2.13" if convention == "inclusive" else "2.15")
        case "as since":
            assert side == "since"
        case "":
            assert side == side_of(row, INSTALLED)


# ---- TorchScript, which has formulas of its own --------------------------------------------------


def call_thrice(f):
    return [g.tolist() for g in call_scripted(f)(torch.tensor([0.0, 0.5, 1.0]))]


def test_scripted_clamp_alone_is_as_in_python():
    at_bound = 0 if RELEASE >= (2, 14) else 1
    assert call_thrice(clamp_alone) == [[at_bound, 1, at_bound]] * 3
    for convention, pinned in {"inclusive": 1, "joint": 0}.items():
        with clampgrad.pin(convention):
            assert call_thrice(clamp_alone) == [[pinned, 1, pinned]] * 3


def test_scripted_clamp_beside_another_operator_changes_after_the_first_call():
    """The first call profiles; from the second on, TorchScript uses its own formula."""
    first = 0 if RELEASE >= (2, 14) else 2
    assert call_thrice(clamp_beside) == [[first, 2, first], [2, 2, 2], [2, 2, 2]]
    for convention in ("inclusive", "joint"):
        with (
            clampgrad.pin(convention),
            pytest.raises(RuntimeError, match="TorchScript differentiates this clamp"),
        ):
            call_thrice(clamp_beside)
