"""Breaks the Python of the package, one place at a time, and reports what no test notices.

    python -m lab.python_mutants FOLDER [--seconds N] [--seed N] [--only TEXT]

TESTS has the folders of python/clampgrad, with their tests; for the portable implementation set
CLAMPGRAD_PORTABLE=1. Mutants are tried in random order,
for that long. Each has a process of its own, forked from one that has collected the tests, and
changes the code of one function. Only the tests that call that function run, the quickest first,
until one fails. Code that runs at import is not changed. What survives is for a person to judge:
some mutants change nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import clampgrad

PACKAGE = Path(clampgrad.__file__).parent
TESTS = {
    "nn": ["test/nn"],
    "_tools/audit": sorted(map(str, Path("test/tools").glob("test_audit*.py"))),
    "_pin": ["test/pin"],
    "_torch": ["test/nn", "test/pin", "test/transforms"],
    "_implementation/portable": ["test/table", "test/transforms", "test/pin"],
}
SWAPPED: dict[type, type] = {ast.And: ast.Or, ast.Or: ast.And}
SWAPPED |= {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
SWAPPED |= {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SWAPPED |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add}

Function = tuple[str, int]  # its file and the line of its `def`, or of its first decorator


# ---- Mutants -------------------------------------------------------------------------------------


def mutate(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yields what may change in a node: a name of the change, and a function that makes it."""
    if type(getattr(node, "op", None)) in SWAPPED:
        yield "operator", lambda n: setattr(n, "op", SWAPPED[type(n.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield "comparison", lambda n: n.ops.__setitem__(0, SWAPPED[type(n.ops[0])]())
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "condition", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    if isinstance(node, ast.Return) and node.value is not None:
        yield "returns None", lambda n: setattr(n, "value", ast.Constant(None))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "left out", lambda n: setattr(n, "value", ast.Constant(None))
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        yield (
            "constant",
            lambda n: setattr(
                n, "value", not n.value if isinstance(n.value, bool) else n.value + 1
            ),
        )
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "arguments swapped", lambda n: n.args.__setitem__(slice(0, 2), n.args[1::-1])
    if isinstance(node, ast.Call) and node.keywords:
        yield "keyword left out", lambda n: n.keywords.pop()
    if isinstance(node, ast.Try) and node.finalbody:
        yield "finally left out", lambda n: setattr(n, "finalbody", [ast.Pass()])


class Mutant:
    def __init__(self, path: Path, tree: ast.Module, index: int, change: Any, function: str):
        node = [*ast.walk(tree)][index]
        name, self.change = change
        self.path, self.tree, self.index = path, tree, index
        line = ast.unparse(node).splitlines()[0]
        place = f"{path.relative_to(PACKAGE)}:{node.lineno}"  # type: ignore[attr-defined]
        self.text = f"{place}: {function}: {name}: {line}"

    def codes(self) -> dict[tuple[str, int], CodeType]:
        """Compiles the file with the change: its functions by name and line."""
        tree = copy.deepcopy(self.tree)
        self.change([*ast.walk(tree)][self.index])
        ast.fix_missing_locations(tree)
        return codes_in(compile(tree, str(self.path), "exec"))


def codes_in(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Returns the functions in it. Of several lambdas on a line, none can be told from the others;
    their outer function has them."""
    by_key: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    codes = [code]
    for outer in codes:
        inner = [constant for constant in outer.co_consts if isinstance(constant, CodeType)]
        codes += inner
        for each in inner:
            by_key[each.co_name, each.co_firstlineno].append(each)
    return {key: each[0] for key, each in by_key.items() if len(each) == 1}


def mutants_of(path: Path) -> Iterator[tuple[Function, Mutant]]:
    """Yields the mutants of a file, each with the outermost function that it is in."""
    tree = ast.parse(path.read_text())
    index = {id(node): i for i, node in enumerate(ast.walk(tree))}
    scopes: list[ast.AST] = [tree]
    for scope in scopes:
        for node in ast.iter_child_nodes(scope):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                scopes.append(node)
                continue
            line = min(n.lineno for n in (node, *node.decorator_list))
            for inner in (n for statement in node.body for n in ast.walk(statement)):
                for change in mutate(inner):
                    mutant = Mutant(path, tree, index[id(inner)], change, node.name)
                    yield (str(path), line), mutant


# ---- Tests ---------------------------------------------------------------------------------------


def fork(work: Callable[[], Any], seconds: float) -> Any:
    """Runs `work` in a process of its own, and returns what it does, or None if it ends otherwise
    or takes longer."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(int(seconds) + 1)
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1), os.dup2(quiet, 2)
            with open(writing, "w") as file:
                json.dump(work(), file)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    return json.loads(text) if os.waitpid(child, 0)[1] == 0 else None


def first_failure(items: list[pytest.Item]) -> str:
    for item, following in zip(items, [*items[1:], None]):
        if any(report.failed for report in runtestprotocol(item, False, following)):
            return item.nodeid
    return ""


def observe(item: pytest.Item) -> tuple[float, bool, list[Function]]:
    """Runs a test: its seconds, whether it fails, and which functions of the package it calls."""
    called: set[Function] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    start = time.monotonic()
    sys.setprofile(note)
    failed = first_failure([item])
    sys.setprofile(None)
    return time.monotonic() - start, bool(failed), sorted(called)


def try_mutant(mutant: Mutant, items: list[pytest.Item]) -> str:
    codes = mutant.codes()
    # By type: isinstance asks for a class, and a dead weakref.proxy raises an error.
    for function in (o for o in gc.get_objects() if type(o) is FunctionType):
        code = function.__code__
        new = codes.get((code.co_name, code.co_firstlineno))
        is_same = new and len(new.co_freevars) == len(code.co_freevars)
        if is_same and code.co_filename == str(mutant.path):
            function.__code__ = new
    return first_failure(items)


def tests_by_function(items: list[pytest.Item]) -> dict[Function, list[tuple[float, pytest.Item]]]:
    """Runs each test, and returns those that call a function, each with its seconds."""
    tests = defaultdict(list)
    for item in items:
        seconds, failed, functions = fork(lambda: observe(item), 600) or (0, True, [])
        if failed:
            print(f"left out, because it fails alone: {item.nodeid}", flush=True)
        for function in [] if failed else functions:
            tests[tuple(function)].append((seconds, item))
    return tests


class Plugin:
    def __init__(self, folder: str, seconds: float, seed: int, only: str):
        self.folder, self.seconds, self.only = folder, seconds, only
        self.random = random.Random(seed)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = tests_by_function(session.items)
        paths = sorted((PACKAGE / self.folder).rglob("*.py"))
        mutants = [(f, m) for p in paths for f, m in mutants_of(p) if self.only in m.text]
        self.random.shuffle(mutants)
        ends = time.monotonic() + self.seconds
        tried = survivors = 0
        for function, mutant in mutants:
            if time.monotonic() > ends:
                break
            tried += 1
            ordered = sorted(tests[function], key=lambda pair: pair[0])
            limit = 10 + 5 * sum(seconds for seconds, _ in ordered)
            if fork(lambda: try_mutant(mutant, [item for _, item in ordered]), limit) == "":
                survivors += 1
                print(f"SURVIVES {len(ordered)} tests: {mutant.text}", flush=True)
        print(f"{tried} of {len(mutants)} mutants tried, {survivors} survive")
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", choices=TESTS)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="those with this text")
    options = parser.parse_args()
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    pytest.main([*quiet, *TESTS[options.folder]], plugins=[Plugin(**vars(options))])


if __name__ == "__main__":
    main()
