"""Mistakes in the two YAML files that torchgen would accept, or report without saying where.

Each error names the file, the line, the operator and the torch release.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
import yaml
from torchgen.model import NativeFunction

# Names a formula may use besides its operator's own arguments and results.
FORMULA_WORDS = {
    "grad",
    "grad_input_mask",
    "differentiated",
    "true",
    "false",
    "auto_element_wise",
    "auto_linear",
}
NOT_FORMULAS = {"name", "output_differentiability"}


class CodegenError(RuntimeError):
    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path.name}:{line}: {message} (torch {torch.__version__})")


class _LineLoader(yaml.SafeLoader):
    """Adds the line of every mapping under the key __line__."""

    def construct_mapping(self, node, deep=False):  # type: ignore[no-untyped-def]
        mapping = super().construct_mapping(node, deep=deep)
        mapping["__line__"] = node.start_mark.line + 1
        return mapping


def load_entries(path: Path) -> list[dict]:
    try:
        entries = yaml.load(path.read_text(), Loader=_LineLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise CodegenError(path, line, f"not valid YAML: {error.problem}") from error
    return entries


def check_derivatives(path: Path, functions: list[NativeFunction]) -> None:
    by_schema = {str(f.func): f for f in functions}
    by_name: dict[str, list[NativeFunction]] = {}
    for f in functions:
        by_name.setdefault(str(f.func.name), []).append(f)

    seen: set[str] = set()
    for entry in load_entries(path):
        line, schema = entry.pop("__line__"), entry.get("name", "")
        function = by_schema.get(schema)
        if function is None:
            name = schema.split("(")[0]
            hint = (
                f"its schema is {by_name[name][0].func}"
                if name in by_name
                else "native_functions.yaml has no such operator"
            )
            raise CodegenError(path, line, f"unknown operator {schema!r}; {hint}")
        if schema in seen:
            raise CodegenError(path, line, f"a second formula for {function.func.name}")
        seen.add(schema)
        _check_entry(path, line, function, entry)

    derived = {by_schema[schema].func.signature() for schema in seen}  # in place or not
    for f in functions:
        if not f.has_composite_implicit_autograd_kernel and f.func.signature() not in derived:
            raise CodegenError(path, 1, f"no formula for {f.func}")


def _check_entry(path: Path, line: int, f: NativeFunction, entry: dict) -> None:
    name = str(f.func.name)
    if f.has_composite_implicit_autograd_kernel:
        raise CodegenError(path, line, f"superfluous formula: {name} takes none (it decomposes)")
    arguments = {a.name: a for a in f.func.arguments.flat_all}
    differentiable = {n for n, a in arguments.items() if a.type.is_tensor_like()}
    returns = {r.name for r in f.func.returns if r.name} | {"result"}
    formulas = {k: v for k, v in entry.items() if k not in NOT_FORMULAS}

    covered: set[str] = set()
    for key, formula in formulas.items():
        for target in (part.strip() for part in key.split(",")):
            if target not in differentiable | returns:
                kind = (
                    "is no Tensor" if target in arguments else "is neither an argument nor a result"
                )
                raise CodegenError(path, line, f"formula for {target!r} of {name}, which {kind}")
            covered.add(target)
        known = set(arguments) | returns | FORMULA_WORDS
        known |= {f"{n}_{suffix}" for n in differentiable for suffix in ("p", "t")}
        if str(formula).strip() != "non_differentiable":
            for word in _free_names(str(formula)) - known:
                raise CodegenError(
                    path, line, f"unknown name {word!r} in the formula for {key!r} of {name}"
                )

    no_output = entry.get("output_differentiability") == [False]
    missing = differentiable - covered
    if missing and not no_output:
        raise CodegenError(path, line, f"{name} has no formula for {', '.join(sorted(missing))}")
    if covered and no_output:
        raise CodegenError(
            path, line, f"superfluous formula: no output of {name} is differentiable"
        )


def _free_names(formula: str) -> set[str]:
    """Identifiers that are not called, constructed, qualified, or members."""
    return set(re.findall(r"(?<![\w.:>])[A-Za-z_]\w*\b(?!\s*(?:[({]|::)|<\d+>\s*[({])", formula))
