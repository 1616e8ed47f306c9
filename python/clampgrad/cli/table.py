"""Tables for the terminal, by rich, which is an optional dependency."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from clampgrad._tools.optional import need

if TYPE_CHECKING:
    from rich.table import Table


def new_table(
    title: str, columns: Sequence[str], left: Collection[str] = (), caption: str | None = None
) -> Table:
    """A table of numbers; the columns in `left` hold words."""
    box = need("rich.box")
    table = need("rich.table").Table(
        title="\n" + title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


def rendered(table: Table) -> str:
    """The whole of it, also where the terminal is narrower: a cut number is no number."""
    rich = need("rich.console")
    console = rich.Console()
    console.width = max(console.width, rich.Console(width=10_000).measure(table).maximum)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
