"""Fill the generated tables of README.md and docs/: `python -m lab.fill_tables`; `make pictures` does it too.

A table stands between <!-- generated: NAME --> and <!-- end -->; nothing else is touched. Each is made beside what
measured it, from a record.
"""

import re
from pathlib import Path

import benchmarks.tables
from lab import contract_tables, private_names_page, upstream_tables
from lab.programs import program_tables
from lab.study import tables as study_tables

ROOT = Path(__file__).parent.parent
MODULES = (
    benchmarks.tables,
    contract_tables,
    upstream_tables,
    private_names_page,
    program_tables,
    study_tables,
)
TABLES = {name: table for module in MODULES for name, table in module.TABLES.items()}
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages():
    """Those with a table in them, by their paths."""
    folders = ("*.md", "benchmarks/*.md", "docs/**/*.md", "patches/**/*.md")
    found = sorted(path for folder in folders for path in ROOT.glob(folder))
    return [str(path.relative_to(ROOT)) for path in found if names_in(path.read_text())]


def names_in(text):
    return [name for _, name, _ in BLOCK.findall(text)]


def fill(text):
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}\n{block[3]}", text)


if __name__ == "__main__":
    for page in pages():
        path = ROOT / page
        path.write_text(fill(path.read_text()))
