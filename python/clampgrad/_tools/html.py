"""Tables and sentences as a notebook shows them."""

from collections.abc import Sequence
from html import escape

from clampgrad._tools.text_table import Table


def paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def table(shown: Table) -> str:
    """The table, with its title above and its caption below."""
    styles = [
        f' style="text-align: {"left" if name in shown.left else "right"}"'
        for name in shown.columns
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        inside = (f"<{tag}{style}>{escape(c)}</{tag}>" for c, style in zip(cells, styles))
        return f"<tr>{''.join(inside)}</tr>"

    head, body = line(shown.columns, "th"), "".join(line(row, "td") for row in shown.rows)
    rows = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    return paragraphs(shown.title.splitlines()) + rows + paragraphs(shown.caption.splitlines())
