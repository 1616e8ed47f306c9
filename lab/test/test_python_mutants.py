"""Mutants of Python: each changes one place of a function, and the function that runs."""

import importlib.util
import json
import weakref

import pytest

from lab import python_mutants

SOURCE = """
LIMIT = 3


def smaller(x):
    def inner():
        return x < 3 and True

    return inner()
"""


@pytest.fixture
def mutants(tmp_path, monkeypatch):
    monkeypatch.setattr(python_mutants, "PACKAGE", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, [*python_mutants.mutants_of(path)]


def test_each_place_of_a_function_is_changed(mutants):
    _, pairs = mutants
    texts = [mutant.text.split(": ", 2)[2] for _, mutant in pairs]
    assert sorted(texts) == [
        "comparison: x < 3",
        "constant: 3",
        "constant: True",
        "operator: x < 3 and True",
        "returns None: return inner()",
        "returns None: return x < 3 and True",
    ]
    assert {function for function, _ in pairs} == {(str(pairs[0][1].path), 5)}


def test_a_mutant_runs_in_a_process_of_its_own(mutants, monkeypatch):
    module, pairs = mutants
    dead = weakref.proxy(type("Gone", (), {})())  # as in any process that has run for a while
    results = {}
    monkeypatch.setattr(
        python_mutants,
        "first_failure",
        lambda _: json.dumps([module.smaller(x) for x in (2, 3, 4)]),
    )
    for _, mutant in pairs:
        results[mutant.text.split(": ", 2)[2]] = json.loads(
            python_mutants.fork(lambda: python_mutants.try_mutant(mutant, []), 10)
        )
    assert results["comparison: x < 3"] == [True, True, False]
    assert results["constant: 3"] == [True, True, False]
    assert results["returns None: return inner()"] == [None] * 3
    assert module.smaller(2) is True
    assert python_mutants.fork(lambda: 1 / 0, 10) is None
    del dead
