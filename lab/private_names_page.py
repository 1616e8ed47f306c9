"""The tables of docs/private_names.md: the private names of torch that
clampgrad uses, and the headers."""

import re
from pathlib import Path

from clampgrad._torch.private_names import PRIVATE
from records import code, table

ROOT = Path(__file__).parent.parent
INTERNAL = re.compile(
    r"torch/csrc/|ATen/functorch/|ATen/native/|/impl/|TLS\.h|SavedTensorHooks|Legacy"
    r"|PythonObjects|SafePyObject"
)


@table()
def private_names():
    """One row a name, by what happens where it is gone; the table is
    python/clampgrad/_torch/private_names.py."""
    sources = {path: path.read_text() for path in sorted(ROOT.glob("python/**/*.py"))}
    for use in PRIVATE.values():
        yield f"If one of these is gone: {use.if_missing}."
        yield "name", "where it is used", "what for"
        for name, purpose in use.names.items():
            last = re.escape(re.split(r"[.:]", name)[-1])
            where = (
                code(path.relative_to(ROOT / "python/clampgrad"))
                for path, text in sources.items()
                if re.search(rf"\b{last}\b", text) and path.name != "private_names.py"
            )
            yield code(name.replace(":", ".")), ", ".join(where), purpose


def internal_headers():
    """Header -> the files that include it."""
    files_by_header = {}
    for path in sorted(ROOT.glob("csrc/**/*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for header in re.findall(r"#include <((?:ATen|c10|torch)/[^>]+)>", path.read_text()):
                if INTERNAL.search(header):
                    files_by_header.setdefault(header, []).append(path.relative_to(ROOT / "csrc"))
    return files_by_header


@table()
def private_headers():
    yield "header", "included by"
    for header, files in sorted(internal_headers().items()):
        yield code(header), ", ".join(map(code, files))
