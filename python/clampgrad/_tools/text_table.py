"""Tables as plain text: aligned columns or, where the terminal is narrower, one record below another."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

PROSE = 98  # the width of sentences, at most

COLOURS = {"green": "\033[32m", "yellow": "\033[33m", "red": "\033[31m"}
PLAIN = "\033[0m"


class Coloured(str):
    """The text of a cell with a colour. The colour says nothing that the text does not."""

    colour: str

    def __new__(cls, text: str, colour: str) -> Coloured:
        cell = super().__new__(cls, text)
        cell.colour = colour
        return cell


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

    def text(self, width: int | None = None, colours: bool = False) -> str:
        """The table in lines of at most `width` characters, or as wide as it is."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows)]
        fits = width is None or sum(widths) + 2 * (len(widths) - 1) <= width
        body = self._aligned(widths, colours) if fits else self._records(width or PROSE, colours)
        return "\n".join([*prose(self.title, width), *body, *prose(self.caption, width)])

    def shown(self, stream: TextIO | None, wide: bool = False) -> str:
        """The table as `stream` shows it best."""
        return self.text(None if wide else width_of(stream), has_colours(stream))

    def _aligned(self, widths: list[int], colours: bool) -> list[str]:
        def line(cells: Sequence[str]) -> str:
            padded = [
                cell.ljust(width) if name in self.left else cell.rjust(width)
                for name, cell, width in zip(self.columns, cells, widths)
            ]
            shown = [_coloured(p, cell, colours) for p, cell in zip(padded, cells)]
            return "  ".join(shown).rstrip()

        return [line(self.columns), *map(line, self.rows)]

    def _records(self, width: int, colours: bool) -> list[str]:
        lines = []
        for row in self.rows:
            heading = "  ".join(filter(None, row[: self.names]))
            lines += textwrap.wrap(heading, width, subsequent_indent="    ")
            pairs = list(zip(self.columns, row))[self.names :]
            items = [(f"{name}: {cell}", cell) for name, cell in pairs if cell.strip()]
            lines += _flowing(items, width, colours)
        return lines


def _flowing(items: Iterable[tuple[str, str]], width: int, colours: bool) -> list[str]:
    """Puts as many on a line as it holds, each whole where that is possible."""
    lines: list[list[tuple[str, str]]] = [[]]
    for item in items:
        line = lines[-1]
        if line and 2 + sum(len(text) + 2 for text, _ in [*line, item]) > width:
            lines.append([item])
        else:
            line.append(item)
    flowing = []
    for line in lines:
        plain = "; ".join(text for text, _ in line)
        if len(plain) + 2 > width:
            flowing += textwrap.wrap(plain, width, initial_indent="  ", subsequent_indent="    ")
        else:
            flowing.append("  " + "; ".join(_coloured(t, cell, colours) for t, cell in line))
    return flowing


def _coloured(text: str, cell: str, colours: bool) -> str:
    return (
        f"{COLOURS[cell.colour]}{text}{PLAIN}" if colours and isinstance(cell, Coloured) else text
    )


def prose(text: str, width: int | None) -> list[str]:
    """Paragraphs in lines that a person can read."""
    most = min(width or PROSE, PROSE)
    return [line for part in text.splitlines() for line in textwrap.wrap(part, most) or [""]]


# ---- Where it is read ------------------------------------------------------------------------------


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def width_of(stream: TextIO | None) -> int | None:
    """How wide the terminal is, or COLUMNS if that is set; None for a file, which has no width."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if stream is None or not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def has_colours(stream: TextIO | None) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")
