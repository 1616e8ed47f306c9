"""Tables as text. Where the terminal is too narrow for columns, one record stands below another."""

import os
import textwrap
from collections.abc import Collection, Sequence
from html import escape
from typing import TextIO

PROSE = 98  # the width of sentences, at most
NO_BREAK = "\N{NO-BREAK SPACE}"  # textwrap keeps together what it joins


class Table:
    """Rows of text under a title.

    Args:
        columns: the names of the columns.
        left: those that hold words; the others hold numbers.
        title: what stands above.
        caption: what stands below; paragraphs end with a line break.
        names: how many columns say which row it is. They are the first.
    """

    def __init__(
        self,
        columns: Sequence[str],
        left: Collection[str] = (),
        title: str = "",
        caption: str = "",
        names: int = 1,
    ) -> None:
        self.columns, self.left, self.names = list(columns), left, names
        self.title, self.caption = title, caption
        self.rows: list[list[str]] = []

    def add_row(self, *cells: str) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append(list(cells))

    def text(self, width: int | None = None) -> str:
        """Returns the table in lines of at most `width` characters, or as wide as it is."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows)]
        fits = width is None or sum(widths) + 2 * (len(widths) - 1) <= width
        body = self._aligned(widths) if fits else self._records(width or PROSE)
        return "\n".join([*prose(self.title, width), *body, *prose(self.caption, width)])

    def _aligned(self, widths: list[int]) -> list[str]:
        def line(cells: Sequence[str]) -> str:
            padded = [
                cell.ljust(width) if name in self.left else cell.rjust(width)
                for name, cell, width in zip(self.columns, cells, widths)
            ]
            return "  ".join(padded).rstrip()

        return [line(self.columns), *map(line, self.rows)]

    def _records(self, width: int) -> list[str]:
        lines = []
        for row in self.rows:
            heading = "  ".join(filter(None, row[: self.names]))
            lines += textwrap.wrap(heading, width, subsequent_indent="    ")
            pairs = list(zip(self.columns, row))[self.names :]
            lines += _flowing([f"{name}: {cell}" for name, cell in pairs if cell.strip()], width)
        return lines


def _flowing(items: Sequence[str], width: int) -> list[str]:
    """Puts as many parts on a line as fit, each of them whole where that is possible."""
    text = "; ".join(item.replace(" ", NO_BREAK) for item in items)
    lines = textwrap.wrap(text, width - 2, break_long_words=False, break_on_hyphens=False)
    flowing = []
    for line in lines:
        line = line.replace(NO_BREAK, " ").removesuffix(";")
        flowing += textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="    ")
    return flowing


def prose(text: str, width: int | None) -> list[str]:
    """Wraps paragraphs into lines of a readable length."""
    most = min(width or PROSE, PROSE)
    return [line for part in text.splitlines() for line in textwrap.wrap(part, most) or [""]]


def preformatted(text: str) -> str:
    """Returns a text with tables as a notebook shows it: lines do not wrap."""
    return f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre>'


# ---- Where it is read ----------------------------------------------------------------------------


def width_of(stream: TextIO | None) -> int | None:
    """Returns the width of the terminal, or COLUMNS if that is set; None for a file."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError):  # no terminal, or closed
        return None
