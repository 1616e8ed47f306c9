"""What the contract says in docstrings, where "conventions" or "ties" stands in braces.

`help` shows it, and so does the site, which imports this file alone: it imports nothing of the
package.
"""

from collections.abc import Iterator
from typing import Any


def filled(text: str, operator: str, table: dict[str, Any]) -> str:
    """Returns the docstring of an operator, with the lists of the table in their places."""
    if "{conventions}" in text:
        text = text.replace("{conventions}", "\n".join(_rules(table)))
    if "{ties}" in text:
        text = text.replace("{ties}", "\n".join(_ties(operator, table)))
    return text


def _rules(table: dict[str, Any]) -> Iterator[str]:
    """Returns lines for the conventions, with their aliases and rules."""
    for name, rule in table["conventions"].items():
        aliases = [f" or ``{alias}``" for alias, of in table["aliases"].items() if of == name]
        yield f"- ``{name}``{''.join(aliases)}: {rule}"


def _ties(operator: str, table: dict[str, Any]) -> Iterator[str]:
    """Returns lines that say what each convention gives the arguments at a tie."""
    rows = [row for row in table["operators"][operator]["rows"] if len(row["active"]) != 1]
    for name in rows[0]["tensors"]:
        shares = (
            f"({', '.join(map(str, row['tensors'][name]))}) where {row['position']}" for row in rows
        )
        yield f"- ``{name}``: {', '.join(shares)}"
