"""The rows of a survey, and how they are shown: as a table, as Markdown, as data."""

import sys
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch

from clampgrad._pin.installed import describe_patch
from clampgrad._tools.tables import Table, preformatted, width_of

# A gradient of all arguments together.
Vector: TypeAlias = tuple[float, ...]

RULES = {
    1: "smooth: the derivative",
    2: "convex: the subgradient of least norm",
    3: "concave: the supergradient of least norm",
    4: "neither: by continuity, any of several",
}


@dataclass
class Row:
    """One function at one point. Gradients of several arguments are in the order of the arguments.

    Attributes:
        function: the expression.
        at: the point.
        limits: the limits of the gradient, approaching the point from different sides.
        rule: the number of the rule in PyTorch's documentation that applies.
        expected: the gradient that the rule asks for, or None if it leaves the choice.
        measured: the gradient; more than one if elements of the same Tensor differ.
        verdict: ``"as documented"``, ``"a free choice"``,
            ``"not of least norm"`` or ``"no subgradient"``.
        nan: the gradient where the first argument is NaN, which PyTorch leaves undefined.
    """

    function: str
    at: str
    limits: list[Vector]
    rule: int
    expected: Vector | None
    measured: list[Vector]
    verdict: str
    nan: list[Vector]


class Survey(list[Row]):
    """A list of :class:`clampgrad.Row`. ``print`` and notebooks show it as a
    table, which fits the terminal.

    The table has the function, the point, the limits of the gradient there, PyTorch's
    documented rule and the gradient that it expects, the measured gradient, a
    verdict, and the gradient at NaN.
    """

    def __repr__(self) -> str:
        return f"<clampgrad.Survey: torch {torch.__version__}, {len(self)} points; print it>"

    def __str__(self) -> str:
        return self.table().text(width_of(sys.stdout))

    def _repr_html_(self) -> str:
        return preformatted(self.table().text())

    def table(self) -> Table:
        """Returns what is shown, for another width or format."""
        caption = [
            "*: not what PyTorch documents.",
            *(f"Rule {number}, {text}." for number, text in RULES.items()),
            "NaN: where the first argument is NaN.",
            *filter(None, [describe_patch()]),
        ]
        table = Table(
            COLUMNS,
            left=("function", "at", "verdict"),
            title=f"The gradient at kinks and ties: torch {torch.__version__}",
            caption="\n".join(caption),
            names=2,
        )
        for row in self:
            *before, verdict, nan = cells(row)
            mark = " *" * (verdict in NOT_DOCUMENTED)
            table.add_row(*before, verdict + mark, nan)
        return table


COLUMNS = (
    "function",
    "at",
    "limits",
    "rule",
    "expected",
    "measured",
    "verdict",
    "NaN",
)


def text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(text, value))
        return inside if isinstance(value, tuple) and len(value) == 1 else f"({inside})"
    return f"{value:.4g}"


NOT_DOCUMENTED = ("not of least norm", "no subgradient")  # verdicts


def cells(row: Row) -> list[str]:
    """Returns a row as text, in the order of COLUMNS."""

    def several(vectors: list[Vector]) -> str:
        return " or ".join(map(text, vectors))

    return [
        *(row.function, row.at, several(row.limits), str(row.rule)),
        "" if row.expected is None else text(row.expected),
        *(several(row.measured), row.verdict, several(row.nan)),
    ]


def as_data(rows: list[Row]) -> dict[str, Any]:
    """Returns all rows for JSON, where a NaN becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and value != value else value

    table = [{key: plain(value) for key, value in asdict(row).items()} for row in rows]
    return {"torch": torch.__version__, "rules": RULES, "rows": table}


def as_markdown(rows: list[Row]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [[f"`{c}`" if i == 0 else c for i, c in enumerate(cells(row))] for row in rows]
    rules = [f"Rule {number}, {text}." for number, text in RULES.items()]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n" + " ".join([*rules, f"Measured with torch {torch.__version__}."]) + "\n"
