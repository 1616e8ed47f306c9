"""Fill the generated tables of README.md and docs/:
`python -m lab.fill_tables`; `nox -s pictures` does it too.

A table stands between <!-- generated: NAME --> and <!-- end -->; nothing else is
touched. NAME is a function of one of the modules here, each beside what measured it,
that makes the table from a record.
"""

import re
from importlib import import_module
from pathlib import Path

from records import TABLES

ROOT = Path(__file__).parent.parent
for name in (
    "benchmarks.tables",
    "lab.changes.tables",
    "lab.contract_tables",
    "lab.libraries.clamps",
    "lab.libraries.tables",
    "lab.matrix_page",
    "lab.private_names_page",
    "lab.programs.program_tables",
    "lab.sessions",
    "lab.upstream_tables",
    "lab.zoo",
):
    import_module(name)
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages():
    """The paths of the pages with a table."""
    folders = ("*.md", "docs/**/*.md", "patches/**/*.md")
    paths = sorted(path for folder in folders for path in ROOT.glob(folder))
    return [str(path.relative_to(ROOT)) for path in paths if names_in(path.read_text())]


def names_in(text):
    begun = re.findall(r"<!-- (generated: \w+|end) -->", text)
    assert [mark == "end" for mark in begun] == [False, True] * (len(begun) // 2), begun
    return [name for _, name, _ in BLOCK.findall(text)]


def fill(text):
    names_in(text)  # no block without its end
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}\n{block[3]}", text)


if __name__ == "__main__":
    for page in pages():
        path = ROOT / page
        path.write_text(fill(path.read_text()))
