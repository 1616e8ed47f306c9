"""Importing stays lean: at most 0.15 s over `import torch`, and nothing heavy comes along."""

import importlib
import json
import os
import shutil
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

import clampgrad
from clampgrad._contract.table import ALIASES
from clampgrad._torch.after_import import get_if_imported
from clampgrad.functional import ExactGradient
from testing.cases import slow_after
from testing.processes import BARE, python, run, run_checked
from testing.slopes import SLOPE_SCRIPT

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
# What a build may have added to the tree.
BUILT = shutil.ignore_patterns(
    *("_lib", "build.py", "gradients.py", "messages.json", "schemas.json", "table.json")
)

SCRIPT = """
import json, sys, time, torch
before, began = set(sys.modules), time.process_time()
import clampgrad
assert clampgrad.implementation == sys.argv[1]
found = {"cpu": time.process_time() - began, "modules": sorted(set(sys.modules) - before)}
x = torch.zeros(1, requires_grad=True)
with clampgrad.pin("half"):
    y = x.clamp(0, 1) + 2 * clampgrad.clamp(x, 0, 1, gradient="inclusive")
assert torch.autograd.grad(y, x)[0].tolist() == [2.5]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imports(tmp_path_factory):
    """Three fresh interpreters with an environment that has next to nothing; torch is
    imported before the clock starts."""
    folder = tmp_path_factory.mktemp("elsewhere")  # so that the installed package is found
    command = sys.executable, "-W", "error", "-c", SCRIPT, clampgrad.implementation
    return [json.loads(run_checked(*command, cwd=folder, env=os.environ | BARE)) for _ in range(3)]


def test_import_takes_at_most_150_ms(imports):
    """The median of three, of CPU time: the wall clock also counts what else the machine does."""
    assert statistics.median(found["cpu"] for found in imports) <= 0.15, imports


def test_import_loads_no_heavy_module(imports):
    for modules in (found["modules"] for found in imports):
        assert "clampgrad" in modules
        heavy = {m for m in modules if m.split(".")[0] in ("torch", "sympy", "numpy")}
        assert heavy <= {"torch._subclasses.schema_check_mode"}  # small; it turns modes off


def test_the_type_of_the_keyword_has_every_name_and_alias():
    assert {*get_args(clampgrad.Gradient)} == {*clampgrad.CONVENTIONS, *ALIASES}
    exact = {name for name, of in ALIASES.items() if of in clampgrad.EXACT}
    assert {*get_args(ExactGradient)} == {*clampgrad.EXACT} | exact


def test_to_look_for_a_module_is_not_to_import_it():
    """Dynamo and others ask for the spec first; what is done after the import is still done."""
    code = """
import copy, importlib.util, sys, torch, clampgrad
from clampgrad._torch.after_import import when_imported
name, seen = "torch.distributed.tensor", []
when_imported(name, seen.append)
for _ in range(2):
    spec = importlib.util.find_spec(name)
    assert spec.origin.endswith("__init__.py")
    assert copy.copy(spec.loader).is_package(name)
import torch.distributed.tensor as module
assert seen == [module]
for loader in (module.__spec__.loader, module.__loader__):
    assert type(loader).__name__ == "SourceFileLoader"
"""
    python("-c", code)


def test_a_module_that_another_thread_is_importing_is_waited_for(tmp_path, monkeypatch):
    name = "clampgrad_imports_this_slowly"
    (tmp_path / f"{name}.py").write_text("import time; time.sleep(0.5); is_complete = True")
    monkeypatch.syspath_prepend(tmp_path)
    assert get_if_imported(name) is None
    with ThreadPoolExecutor(1) as pool:
        pool.submit(importlib.import_module, name)
        while name not in sys.modules:
            pass
        assert get_if_imported(name).is_complete


# ---- A release of torch that is different -------------------------------------------------------


DIFFERENT = f"""{SLOPE_SCRIPT}
import clampgrad
from clampgrad._torch.after_import import on_import
"""
CHANGES = {
    "trace_rules": "del module.manual_torch_name_rule_map",
    "variables.torch_function": "module.can_dispatch_torch_function = lambda tx: 1",
    "symbolic_convert": "del module.InstructionTranslatorBase.inline_user_function_return",
}


@pytest.mark.compiled("the portable functions are traced as they are")
@pytest.mark.parametrize("module", slow_after(1, CHANGES))
def test_the_compiler_is_imported_where_it_is_different(script, module):
    """There is one warning, and torch still compiles its own functions."""
    code = f"""
def change(module): {CHANGES[module]}
on_import("torch._dynamo.{module}", change)
import torch._dynamo
"""
    if module == "trace_rules":  # torch uses the others itself
        code += "assert slope(torch.compile(clamp, backend='eager')) == slope(clamp)"
    _, error = script(DIFFERENT + code)
    assert error.count("Warning: clampgrad could not adapt torch._dynamo: ") == 1, error


ANOTHER_GUARD = """
def other(self, guard, something_new): pass
def change(module):
    module.torchs = module.GuardBuilder.GLOBAL_STATE
    module.GuardBuilder.GLOBAL_STATE = other
on_import("torch._dynamo.guards", change)
"""


def test_guards_that_are_different_are_a_warning_and_then_an_error_of_the_next_pin(script):
    text = """
with clampgrad.pin("half"):
    pass
import torch._dynamo
guards = torch._dynamo.guards
for _ in range(2):
    try:
        clampgrad.pin("half").__enter__()
        raise SystemExit("no error")
    except RuntimeError as error:
        assert "other takes" in str(error) and "something_new" in str(error)
        assert "does not support torch" in str(error) and clampgrad.pin.current() is None
    assert guards.GuardBuilder.GLOBAL_STATE is other
guards.GuardBuilder.GLOBAL_STATE = guards.torchs
with clampgrad.pin("half"):
    assert slope(torch.compile(clamp, backend="eager")) == slope(clamp) == [0.5, 0]
"""
    _, error = script(DIFFERENT + ANOTHER_GUARD + text)
    assert error.count("Warning: clampgrad could not adapt torch._dynamo.guards: ") == 1, error


def test_guards_that_are_different_end_the_import_under_a_pin(script):
    text = """
with clampgrad.pin("half"):
    try:
        import torch._dynamo
        raise SystemExit("no error")
    except ImportError as error:
        assert "something_new" in str(error) and "'half' cannot hold" in str(error)
"""
    script(DIFFERENT + ANOTHER_GUARD + text)


def test_the_source_tree_is_no_package(tmp_path):
    """What the build adds is not there, and Python finds the tree first: in its folder, or by
    PYTHONPATH."""
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=BUILT)
    ended = run(sys.executable, "-c", "import clampgrad", cwd=tmp_path / "python")
    assert ended.returncode == 1 and "Traceback" in ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("ImportError: "))
    assert f"{tmp_path / 'python'} is clampgrad's source tree, which was not built" in line
