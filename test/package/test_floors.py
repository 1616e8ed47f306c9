"""The floors of csrc/ and python/clampgrad: a file uses only its own floor and those below, without circles."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC, PACKAGE = ROOT / "csrc", ROOT / "python/clampgrad"

# From the ground up; the rooms of one floor do not use each other.
FLOORS = {
    CSRC: [["base"], ["kernels"], ["ops"], ["clampgrad", "functorch", "pin"], ["python"]],
    PACKAGE: [
        *(["_contract", "_torch"], ["_implementation"], ["functional", "_pin"], ["activations"]),
        *(["nn"], ["_tools"], ["cli"], ["__init__", "__main__"]),
    ],
}
PUBLIC = CSRC / "clampgrad/gradient.h"  # a list of names, for programs too: below everything
WRITTEN = {"build", "gradients"}  # by the build


def includes(path):
    """The files of csrc/ that a file includes."""
    for header in re.findall(r'#include ["<]([\w/.]+)[">]', path.read_text()):
        if (CSRC / header).exists() and CSRC / header != PUBLIC:
            yield CSRC / header


def module(dotted):
    """The file of a module of the package, if it is one."""
    name, *rest = dotted.split(".")
    path = PACKAGE.joinpath(*rest)
    found = [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()]
    return found[0] if name == "clampgrad" and found else None


def imports(path):
    """The files of the package that a file imports, in functions too, or names in a text."""
    package = [*path.relative_to(PACKAGE.parent).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            parent = ".".join([*parts, *filter(None, [node.module])])
            dotted = [f"{parent}.{a.name}" for a in node.names]
            dotted = [d if module(d) else parent for d in dotted]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            dotted = [node.value] if re.fullmatch(r"clampgrad(\.\w+)+", node.value) else []
        else:
            continue
        yield from filter(None, map(module, dotted))


@cache
def sources(tree):
    if tree == PACKAGE:
        return [p for p in sorted(tree.rglob("*.py")) if p.stem not in WRITTEN]
    found = [p for p in sorted(tree.rglob("*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
    return [p for p in found if p.relative_to(tree).parts[0] != "compat"]


@cache
def used(path):
    return frozenset(imports(path) if path.suffix == ".py" else includes(path)) - {path}


def room(tree, path):
    """The entry of FLOORS for a file: a folder, or a module; a program is on top wherever it lies."""
    return path.stem if path.stem == "__main__" else Path(path.relative_to(tree).parts[0]).stem


def above(tree, path, other):
    floor = {name: n for n, names in enumerate(FLOORS[tree]) for name in names}
    own, to = room(tree, path), room(tree, other)
    return own != to and floor[to] >= floor[own]


ROOMS = [(tree, name) for tree, floors in FLOORS.items() for names in floors for name in names]


@pytest.mark.parametrize("tree, name", ROOMS, ids=[name for _, name in ROOMS])
def test_what_is_used_is_below(tree, name):
    here = [path for path in sources(tree) if room(tree, path) == name]
    assert here
    assert [(str(p), str(to)) for p in here for to in used(p) if above(tree, p, to)] == []


def test_everything_is_on_a_floor():
    assert {(tree, room(tree, path)) for tree in FLOORS for path in sources(tree)} == {*ROOMS}


def circle(paths, uses):
    """The files of a circle, if there is one: those that are left after removing files that use nothing."""
    left = {path: set(uses(path)) & set(paths) for path in paths}
    while free := {path for path, to in left.items() if not to}:
        left = {path: to - free for path, to in left.items() if path not in free}
    return set(left)


@pytest.mark.parametrize("tree", FLOORS, ids=["csrc", "python"])
def test_no_two_files_use_each_other(tree):
    assert circle(sources(tree), used) == set()


# ---- Two houses ----------------------------------------------------------------------------------

ROOMS_OF_THE_PRODUCT = (
    *("benchmarks", "buildtools", "codegen", "docs", "examples", "python", "records", "test"),
    *("conftest.py", "oracle.py", "setup.py"),
)


def files_of_the_product():
    for name in ROOMS_OF_THE_PRODUCT:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def modules_named(tree):
    """The modules that imports name, and texts that are only the name of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value if re.fullmatch(r"\w+(\.\w+)+", node.value) else ""


def of_the_laboratory(text):
    return [name for name in modules_named(ast.parse(text)) if re.match(r"lab(\.|$)", name)]


def test_the_product_does_not_know_the_laboratory():
    files = [*files_of_the_product()]
    assert len(files) > 100
    assert {
        p: of_the_laboratory(p.read_text()) for p in files if of_the_laboratory(p.read_text())
    } == {}


@pytest.mark.parametrize("text", ["import lab.x", "from lab import x", "f('lab.x')"])
def test_what_knows_the_laboratory_is_seen(text):
    assert of_the_laboratory(text)


def edits_of_the_path(tree):
    """Calls of methods of sys.path, and assignments to it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) == "sys.path" and node.func.attr != "copy":
                yield node
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t for t in targets if re.match(r"sys\.path\b", ast.unparse(t)))


def test_one_file_edits_the_path():
    files = [*files_of_the_product(), *(ROOT / "lab").rglob("*.py")]
    files = [p for p in files if PACKAGE not in p.parents]  # the pin runs other people's programs
    found = {
        str(p.relative_to(ROOT)) for p in files if [*edits_of_the_path(ast.parse(p.read_text()))]
    }
    assert found <= {"lab/__init__.py"}
