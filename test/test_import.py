"""Importing stays lean: at most 0.15 s over `import torch`, and nothing heavy comes along."""

import json
import statistics
import subprocess
import sys
from typing import get_args, get_origin

import pytest

SCRIPT = """
import json, sys, time, torch
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
import clampgrad
print(json.dumps({
    "wall": time.perf_counter() - wall,
    "cpu": time.process_time() - cpu,
    "modules": sorted(set(sys.modules) - before),
}))
"""


@pytest.fixture(scope="module")
def imports(tmp_path_factory):
    """Three fresh interpreters; torch is imported before the clock starts."""
    folder = tmp_path_factory.mktemp("elsewhere")  # so that the installed package is found
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=folder
        )
        for _ in range(3)
    ]
    return [json.loads(run.stdout) for run in runs]


def test_time(imports):
    """The median of three. CPU time: the wall clock also counts what else the machine does."""
    assert statistics.median(run["cpu"] for run in imports) <= 0.15, imports


def test_nothing_heavy(imports):
    for run in imports:
        heavy = [m for m in run["modules"] if m.split(".")[0] in ("torch", "sympy", "numpy")]
        assert not heavy
        assert "clampgrad" in run["modules"]


def test_the_public_names():
    import clampgrad

    for name in clampgrad.__all__:
        assert hasattr(clampgrad, name)
    functions = {"clamp", "clip", "clamp_min", "clamp_max"}
    expected = {f + s for f in functions for s in ("", "_")} | {"clamp_with_grad", "CONVENTIONS"}
    assert set(clampgrad.__all__) >= expected
    for name in clampgrad.__all__:
        value = getattr(clampgrad, name)
        if callable(value) and get_origin(value) is None:  # a type alias has no docstring
            assert value.__doc__, name


def test_the_type_of_the_keyword_has_every_name_and_alias():
    import clampgrad
    from clampgrad._table import ALIASES
    from clampgrad.functional import ExactGradient

    assert {*get_args(clampgrad.Gradient)} == {*clampgrad.CONVENTIONS, *ALIASES}
    exact = {name for name, of in ALIASES.items() if of in clampgrad.EXACT}
    assert {*get_args(ExactGradient)} == {*clampgrad.EXACT} | exact


def test_to_look_for_a_module_is_not_to_import_it():
    """Dynamo and others ask for the spec first; what is done after the import is still done."""
    code = """if True:
        import copy, importlib.util, sys, torch, clampgrad
        from clampgrad._after_import import when_imported
        name, seen = "torch.distributed.tensor", []
        when_imported(name, seen.append)
        for _ in range(2):
            spec = importlib.util.find_spec(name)
            assert spec.origin.endswith("__init__.py")
            assert copy.copy(spec.loader).is_package(name)
        import torch.distributed.tensor as module
        assert seen == [module]
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
        assert type(module.__loader__).__name__ == "SourceFileLoader"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
