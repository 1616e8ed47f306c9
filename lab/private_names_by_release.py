"""Since which release torch has each private name that clampgrad uses: writes records/private_names.jsonl.

    python -m lab.private_names_by_release FOLDER...

Each folder holds a release of torch, installed or a wheel unpacked; its Python sources and stubs are read,
and nothing is run. The first of the releases may have names that are older still.
"""

import re
import sys
from functools import cache
from pathlib import Path

import records
from clampgrad._torch.private_names import PRIVATE
from records import code, markdown

ROOT = Path(__file__).parent.parent
INTERNAL = re.compile(
    r"torch/csrc/|ATen/functorch/|ATen/native/|/impl/|TLS\.h|SavedTensorHooks|Legacy"
)


def names():
    return sorted({name for use in PRIVATE.values() for name in use.names})


@cache
def stubs(torch):
    """Where C++ shows: stubs, and what torch's own Python takes from there."""
    files = [*torch.glob("_C/**/*.pyi"), *torch.glob("*.py"), *torch.glob("[a-z]*/*.py")]
    files += [*torch.glob("_[a-z]*/*.py")]
    return "".join(file.read_text(errors="replace") for file in files)


@cache
def source(torch, module):
    """The text of a module, with all that is in a package."""
    if module == "torch" or module.startswith("torch._C"):
        return stubs(torch)
    path = torch.joinpath(*module.split(".")[1:])
    files = [*path.rglob("*.py"), path.with_suffix(".py"), path.with_suffix(".pyi")]
    return "".join(file.read_text() for file in files if file.exists())


def has(torch, name):
    module, _, path = name.partition(":")
    text = source(torch, module)
    return all(re.search(rf"\b{part.removesuffix('()')}\b", text) for part in path.split("."))


def release(torch):
    found = re.search(r"__version__ = '(\d+\.\d+)", (torch / "version.py").read_text())
    return tuple(map(int, found[1].split(".")))


def main():
    trees = sorted((release(path / "torch"), path / "torch") for path in map(Path, sys.argv[1:]))
    found, gone = {}, []
    for name in names():
        there = [has(torch, name) for _, torch in trees]
        first = there.index(True) if any(there) else None
        if first is None or not all(there[first:]):
            gone.append(f"{name}: {dict(zip((r for r, _ in trees), there))}")
            continue
        found[name] = ".".join(map(str, trees[first][0]))
    if gone:
        sys.exit("\n".join(gone))
    rows = [{"name": name, "since": since} for name, since in found.items()]
    records.write("private_names", rows, releases=[".".join(map(str, r)) for r, _ in trees])


# ---- docs/private_names.md -----------------------------------------------------------------------


def releases_of_names():
    """Name -> the release that has it first."""
    return {row["name"]: row["since"] for row in records.read("private_names")["rows"]}


def private_names():
    """One row a name, by what happens where it is gone; the table is python/clampgrad/_torch/private_names.py."""
    first, *_, latest = records.read("private_names")["releases"]
    since = releases_of_names()
    sources = {path: path.read_text() for path in sorted(ROOT.glob("python/**/*.py"))}
    parts = []
    for use in PRIVATE.values():
        rows = [["name", "where it is used", "since", "what for"]]
        for name, purpose in use.names.items():
            last = re.escape(re.split(r"[.:]", name)[-1])
            where = [
                code(path.relative_to(ROOT / "python/clampgrad"))
                for path, text in sources.items()
                if re.search(rf"\b{last}\b", text) and path.name != "private_names.py"
            ]
            age = f"{first} or before" if since[name] == first else since[name]
            rows.append([code(name.replace(":", ".")), ", ".join(where), age, purpose])
        parts.append(f"If one of these is gone: {use.gone}.\n\n{markdown(*rows)}")
    note = f"Since when: as the Python sources and stubs of {first} to {latest} show it."
    return "\n\n".join([*parts, note])


def internal_headers():
    """Header -> the files that include it."""
    found = {}
    for path in sorted(ROOT.glob("csrc/**/*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for header in re.findall(r"#include <((?:ATen|c10|torch)/[^>]+)>", path.read_text()):
                if INTERNAL.search(header):
                    found.setdefault(header, []).append(path.relative_to(ROOT / "csrc"))
    return found


def private_headers():
    rows = [["header", "included by"]]
    for header, files in sorted(internal_headers().items()):
        rows.append([code(header), ", ".join(map(code, files))])
    return markdown(*rows)


TABLES = {"private_names": private_names, "private_headers": private_headers}

if __name__ == "__main__":
    main()
