"""conventions.yaml for the compiler: what templates/Contract.h is filled with.

The rules read there what the contract says of a tie, and csrc/kernels/rules/check.cpp compares them
with all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

from .check import CodegenError, load_entries

NUMBERS = {"inf": "kInf", "-inf": "-kInf", "nan": "kNaN"}
PSEUDO_SHARES = {"0": "nothing", "g": "g", "1": "one", "-1": "minus_one"}
# Points that the rules look up: x equals one bound, or both; two arguments are equal, or NaN.
LOOKED_UP = {
    "kAtBound": (0, 0, 1),
    "kAtBothBounds": (0, 0, 0),
    "kTie": (0, 0),
    "kAllNaN": (nan, nan),
}
POSITIONS = ("x = y", "x < y", "x > y", "y is NaN")
COLUMNS = ("g < 0", "g = 0", "g > 0", "g is NaN")


def render_contract(path: Path) -> dict[str, object]:
    table: Any = load_entries(path)
    pseudo = {row["position"]: row for row in table["pseudo_gradients"]["rows"]}
    columns = [table["pseudo_gradients"]["columns"].index(c) for c in COLUMNS]
    names = [name for name in table["conventions"] if name != "__line__"]
    exact = [name for name in names if name not in pseudo[POSITIONS[0]]]
    operators = {name: of for name, of in table["operators"].items() if name != "__line__"}
    return {
        "exact": render_gradients(exact),
        **{
            key: render_gradients(read_gradient_names(path, table, key, exact))
            for key in ("depends_on_differentiated", "one_step")
        },
        "comparison_masks": [
            f"constexpr int {name} = {comparison_mask(point)};" for name, point in LOOKED_UP.items()
        ],
        "points": [points(path, name, of, exact) for name, of in operators.items()],
        "pseudo_gradients": [
            pseudo_gradient(name, maximize, columns, pseudo)
            for name in names
            if name not in exact
            for maximize in (False, True)
        ],
    }


def read_gradient_names(path: Path, table: Any, key: str, exact: list[str]) -> list[str]:
    """Reads the names under a key, of which the compiler needs at least one."""
    names = table.get(key) or []
    if not names or not {*names} <= {*exact}:
        raise CodegenError(path, 1, f"{key}: names some of {', '.join(exact)}")
    return names


def render_gradients(names: Iterable[str]) -> str:
    return ", ".join(f"Gradient::{name}" for name in names)


def format_initializer(values: Iterable[object]) -> str:
    return f"{{{', '.join(map(str, values))}}}"


def comparison_mask(point: Iterable[float]) -> int:
    """Encodes how the arguments compare: bit i * n + j is set where argument i <= argument j."""
    return sum((a <= b) << bit for bit, (a, b) in enumerate(product(point, repeat=2)))


def points(path: Path, name: str, operator: dict, exact: list[str]) -> str:
    """Renders an entry for each point of each row."""

    def divisor(factor: object) -> int:
        value = Fraction(str(factor))
        if value.numerator not in (0, 1):
            raise CodegenError(path, line, f"a factor of {factor}: a kernel divides g by a number")
        return value.denominator if value else 0

    arguments, entries = operator["arguments"], []
    for row in operator["rows"]:
        line = row["__line__"]
        active = sum(1 << arguments.index(name) for name in row["active"])
        numbers = (
            format_initializer(divisor(row["numbers"][name]) for name in exact)
            if "numbers" in row
            else "{}"
        )
        tensors = format_initializer(
            format_initializer(map(divisor, row["tensors"][name])) for name in exact
        )
        for point in row["points"]:
            at = format_initializer(NUMBERS.get(repr(float(value)), value) for value in point)
            mask = comparison_mask(point)
            entries.append(f"    {{{line}, {at}, {mask}, {active}, {numbers}, {tensors}}},")
    head = f"constexpr Point<{len(arguments)}> {name}[] = {{"
    return "\n".join([head, *entries, "};"])


def pseudo_gradient(name: str, maximize: bool, columns: list[int], rows: dict) -> str:
    column = f"{name}, maximize" if maximize else name
    if column not in rows[POSITIONS[0]]:
        column = name  # its gradient does not depend on maximize

    def share(position: str, c: int) -> str:
        return f"PseudoShare::{PSEUDO_SHARES[str(rows[position][column][c])]}"

    shares = format_initializer(format_initializer(share(p, c) for c in columns) for p in POSITIONS)
    return f"    {{Gradient::{name}, {str(maximize).lower()}, {shares}}},"
