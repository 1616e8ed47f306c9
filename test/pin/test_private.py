"""Every private name of torch that the package uses is in one table,
and is there in this release."""

import ast
import inspect
import re
from functools import partial
from pathlib import Path

import pytest
import torch

from clampgrad._torch.private_names import PRIVATE, find
from testing.processes import script_runner
from testing.releases import RELEASE

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text() for path in sorted((ROOT / "python/clampgrad").rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}
NAMES = sorted({name for use in PRIVATE.values() for name in use.names})
PARTS = {part for name in NAMES for part in re.split(r"[.:()]+", name)}

# Names with an underscore that are Python's own, not torch's.
PYTHONS = {"_getframe", "_get_running_loop", "_asdict", "_actions", "_option_string_actions"}
PYTHONS |= {"_threads_queues"}
MODULE = re.compile(r"torch(\.\w+)*\._\w+(\.\w+)*")
LOOK_UP = {"getattr", "hasattr", "setattr", "delattr", "expect_attribute"}


def is_private(word):
    return word.startswith("_") and not word.startswith("__") and word.strip("_") != ""


def is_core(text):
    """Whether it is an operator of PyTorch's core set, of which exported programs are made. PyTorch
    keeps those names."""
    if not (match := re.fullmatch(r"torch\.ops\.aten\.(\w+)", text)):
        return False
    return torch.Tag.core in getattr(torch.ops.aten, match[1]).default.tags


def defined(tree):
    """Names that our own modules define."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield getattr(node, "id", None) or getattr(node, "attr", None)


def used(node):
    """(module or None, name, whether a string names it) for private names that may be torch's."""
    if isinstance(node, ast.Attribute) and is_private(node.attr):
        text = ast.unparse(node)
        if text != "torch._C" and not is_core(text):
            yield None, node.attr, False
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
        for alias in node.names:
            if any(map(is_private, [*node.module.split("."), alias.name])):
                yield node.module, alias.name, False
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if MODULE.fullmatch(alias.name):
                yield alias.name, "", False
    elif isinstance(node, ast.Constant) and MODULE.fullmatch(str(node.value)):
        yield node.value, "", True  # as when_imported takes it
    elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in LOOK_UP:
        name = str(getattr(node.args[1], "value", ""))
        if is_private(name):
            yield None, name, True
    elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "expected":
        module, _, name = getattr(node.args[0], "value", ":").partition(":")
        if module or name:  # or it is a variable
            yield module, name, True


def every_use(tree):
    return [use for node in ast.walk(tree) for use in used(node)]


def is_listed(module, name, project_names):
    if module:
        full = f"{module}:{name}" if name else module
        return any(re.match(rf"{re.escape(full)}([.:]|$)", n) for n in NAMES)
    return name in PARTS or name in project_names or name in PYTHONS


def outside_the_table(tree, project_names=frozenset()):
    return [
        name or module
        for module, name, _ in every_use(tree)
        if not is_listed(module, name, project_names)
    ]


def reached(tree):
    """Private names of torch that no string asks for."""
    uses = every_use(tree)
    return [name for module, name, asked_for in uses if not asked_for and (module or name in PARTS)]


def test_every_private_name_is_in_the_table():
    project_names = {name for tree in TREES.values() for name in defined(tree)}
    project_names |= {path.stem for path in TREES} | {"_C", "_lib", "build", "gradients"}
    wrong = {
        str(path): outside
        for path, t in TREES.items()
        if (outside := outside_the_table(t, project_names))
    }
    assert wrong == {}


OUTSIDE = [
    "torch._C._something_new()",
    "torch.ops.aten._neg_view(x)",
    "from torch._dynamo.guards import Something",
    "from torch.overrides import _something_new",
    "import torch._something_new",
    "when_imported('torch._dynamo.something_new', print)",
    "x._something_new = 1; y._another",
    "getattr(torch._C, '_something_new')",
    "expected('torch._dynamo.guards:Something')",
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_name_outside_the_table_is_seen(text):
    assert outside_the_table(ast.parse(text))


def test_a_core_operator_is_not_private():
    assert not outside_the_table(ast.parse("torch.ops.aten._to_copy(x)"))


def test_one_package_reaches_for_private_names():
    assert {path.parent.name for path, tree in TREES.items() if reached(tree)} == {"_torch"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_the_table_is_unused(name):
    last = re.split(r"[.:]", name)[-1]
    texts = (text for path, text in SOURCES.items() if path.name != "private_names.py")
    assert any(re.search(rf"\b{last}\b", text) for text in texts)


# ---- The installed release -----------------------------------------------------------------------


def is_there(name):
    try:
        thing = find(name)
    except (AttributeError, ImportError):
        return False
    owner, _, attribute = name.rpartition("().")
    if not owner or hasattr(thing, attribute):
        return True
    return re.search(rf"\b(self\.)?{attribute}\b", inspect.getsource(thing)) is not None


NEWER = {"torch._C:_remove_obj_from_tls"}  # than 2.11; what to do without it is in thread_state.py


@pytest.mark.skipif(RELEASE < (2, 11), reason="the portable implementation does without some")
@pytest.mark.parametrize("name", NAMES)
def test_private_name_exists(name):
    if name not in NEWER or RELEASE >= (2, 13):
        assert is_there(name)


# ---- What happens where one is gone --------------------------------------------------------------

GONE = """
import sys
from importlib import import_module
module, path, what = sys.argv[1:]
owner = import_module(module)
*owners, name = path.split(".")
for part in owners:
    owner = getattr(owner, part)
try:
    delattr(owner, name)
except (AttributeError, TypeError):  # of C++, or of a class above it
    sys.exit(print("it cannot be taken away"))
try:
    import clampgrad
    if what == "audit":
        clampgrad.audit
    elif what == "pin":
        clampgrad.pin("half").__enter__()
except (ImportError, RuntimeError) as error:
    kind = RuntimeError if what == "pin" else ImportError
    assert type(error) is kind, repr(error)
    assert f"does not support torch" in str(error) and f"has no {module}.{path}" in str(error), error
else:
    sys.exit(f"{path} is gone, and nothing said so")
if what == "pin":
    assert clampgrad.pin.current() is None
"""
CHECKED = [
    (use, name)
    for use in ("package", "portable", "audit", "pin")
    for name in PRIVATE[use].names
    if "()" not in name
]


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    there = (name for _, name in CHECKED if not name.startswith("torch._C") and is_there(name))
    imported = [name.partition(":")[0] for name in there]
    folder = tmp_path_factory.mktemp("script")
    with script_runner(folder, "torch", *dict.fromkeys(imported)) as run:
        yield partial(run, GONE)


@pytest.mark.slow
@pytest.mark.parametrize("use, name", CHECKED)
def test_what_the_table_says_happens(without, use, name):
    if not is_there(name):
        pytest.skip("it is not there")
    variables = {"CLAMPGRAD_PORTABLE": "1"} if use == "portable" else {}
    if cannot := without(*name.split(":"), use, **variables)[0]:
        pytest.skip(cannot)
