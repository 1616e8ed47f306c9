"""The layers of csrc/ and python/clampgrad: a file uses only its own folder and
lower layers, without circles."""

import ast
import itertools
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python/clampgrad"

# The lowest first; the folders of one layer do not use each other.
LAYERS = {
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


def file_of(module):
    """The file of a module of the package, if it is one."""
    name, *rest = module.split(".")
    path = PACKAGE.joinpath(*rest)
    found = [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()]
    return found[0] if name == "clampgrad" and found else None


def modules(path):
    """The modules that a file imports, in functions too, and names of modules in a text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folders = path.relative_to(ROOT).parts[1 : -node.level] if node.level else []
            parent = ".".join([*folders, *filter(None, [node.module])])
            names = [f"{parent}.{alias.name}" for alias in node.names]
            yield from (name if file_of(name) else parent for name in names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from [node.value] if re.fullmatch(r"\w+(\.\w+)+", node.value) else []


def sources(tree):
    if tree == PACKAGE:
        return [p for p in sorted(tree.rglob("*.py")) if p.stem not in WRITTEN]
    return [p for p in sorted(tree.rglob("*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]


def used(path):
    files = map(file_of, modules(path)) if path.suffix == ".py" else includes(path)
    return {*filter(None, files)} - {path}


def folder_of(tree, path):
    """The entry of LAYERS for a file: a folder, or a module; a program
    is on top wherever it lies."""
    return path.stem if path.stem == "__main__" else Path(path.relative_to(tree).parts[0]).stem


def breaks_the_order(tree, path, other):
    """Whether `other` is not in a lower layer than `path`."""
    layer = {name: n for n, names in enumerate(LAYERS[tree]) for name in names}
    user, used_one = folder_of(tree, path), folder_of(tree, other)
    return user != used_one and layer[used_one] >= layer[user]


@pytest.mark.parametrize("tree", LAYERS, ids=["csrc", "python"])
def test_what_is_used_is_below(tree):
    uses = {path: used(path) for path in sources(tree)}
    assert {folder_of(tree, path) for path in uses} == {*itertools.chain(*LAYERS[tree])}
    assert [
        (str(p), str(to)) for p in uses for to in uses[p] if breaks_the_order(tree, p, to)
    ] == []
    TopologicalSorter(uses).prepare()  # CycleError: files that use each other


# ---- Star imports -------------------------------------------------------------------------------


def star_imports(path):
    """Returns the files whose names a file imports all."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield from filter(None, [file_of(node.module)])


def test_star_imports_take_functions_and_classes_only():
    """A variable that its module rebinds would stay what it was where it was imported."""
    paths = {to for path in sources(PACKAGE) for to in star_imports(path)}
    assert paths
    for path in paths:
        body, exported = ast.parse(path.read_text()).body, []
        for node in body:
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
                exported = ast.literal_eval(node.value)
        defined = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        assert exported and {*exported} <= defined, path


# ---- The product and the laboratory --------------------------------------------------------------

PRODUCT_FOLDERS = (
    *("benchmarks", "buildtools", "codegen", "docs", "examples", "python", "records"),
    *("test", "testing", "conftest.py", "oracle.py", "setup.py"),
)
PRODUCT = [p for name in PRODUCT_FOLDERS for p in (ROOT / name).rglob("*.py")]
PRODUCT += [ROOT / name for name in PRODUCT_FOLDERS if name.endswith(".py")]


def of_the_laboratory(path):
    return [name for name in modules(path) if name.partition(".")[0] == "lab"]


def test_the_product_does_not_know_the_laboratory():
    assert len(PRODUCT) > 100 and of_the_laboratory(ROOT / "lab/patched.py")
    assert {str(p): found for p in PRODUCT if (found := of_the_laboratory(p))} == {}
