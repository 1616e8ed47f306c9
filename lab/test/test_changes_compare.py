"""The comparison of releases: what it tells apart, and that it goes on behind a crash."""

import json
import math
import os
import signal
import sys

import pytest
import torch

from lab.changes.__main__ import run_group
from lab.changes.comparison import compare_cases, compare_tensors
from lab.changes.results import encode, evaluate
from testing.processes import run

ONE = torch.tensor([1.0, 100.0])


@pytest.mark.parametrize(
    "kind, other",
    {
        "rounding": ONE * (1 + 1e-6),
        "number": torch.tensor([1.0, 101.0]),
        "small number": torch.tensor([1.01, 100.0]),
        "not finite": torch.tensor([1.0, math.nan]),
        "structure": ONE.double(),
        "absent": None,
    }.items(),
)
def test_kinds_of_differences(kind, other):
    encoded = None if other is None else encode(other)
    assert compare_tensors(encode(ONE), encoded)[0] == kind


def test_zeros_and_integers_and_python_values_are_compared():
    zeros = torch.zeros(2)
    assert compare_tensors(encode(zeros), encode(-zeros))[0] == "zero's sign"
    assert compare_tensors(encode(ONE.int()), encode(ONE.int() + 1))[0] == "integer"
    assert compare_tensors(encode(3), encode(4))[0] == "structure"
    assert encode(torch.tensor(math.nan)) == encode(torch.tensor(math.nan))


def test_every_part_of_a_case_is_evaluated():
    def square(x):
        return x * x

    x = torch.tensor([3.0], dtype=torch.float64)
    parts = evaluate(square, [x], [True], second=True)
    names = ["value", "recorded", "gradient", "gradient with graph", "second gradient", "tangent"]
    assert [*parts] == names
    cube = evaluate(lambda x: x**3, [x], [True], second=True)
    assert {*compare_cases(parts, cube)} == {*names} - {"recorded"}
    raises = evaluate(lambda x: x.view(7), [x], [True])
    assert compare_cases(parts, raises)["value"][0] == "raises"


def test_a_run_goes_on_behind_a_crash(tmp_path):
    def make_cases():
        for name in ("before", "crash", "after"):
            yield Named(name, lambda name=name: crash() if name == "crash" else ONE, [], [])

    def crash():
        os.kill(os.getpid(), signal.SIGKILL)

    run_group("group", make_cases, out := tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["case"] for line in lines] == ["before", "crash", "after"]
    assert lines[1]["parts"]["value"].startswith("error: the process ended")


class Named(tuple):
    """A case, without the databases that lab.changes.cases imports."""

    def __new__(cls, *fields):
        return super().__new__(cls, fields)

    @property
    def name(self):
        return self[0]


@pytest.mark.thorough
def test_two_runs_of_one_release_are_equal_to_the_bit(tmp_path):
    command = [sys.executable, "-m", "lab.changes"]
    paths = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for path in paths:
        done = run(*command, "run", "--only", "^(clipping|op quantile)$", "--out", path)
        assert done.returncode == 0, done.stderr
    done = run(*command, "compare", *paths)
    assert done.returncode == 0 and " 0 but for rounding, 0 differ" in done.stdout, done.stdout
