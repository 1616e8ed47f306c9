"""Since which release torch has each private name that clampgrad uses: writes docs/private_names.json.

    python tools/private_names.py FOLDER...

Each folder holds a release of torch, installed or a wheel unpacked; its Python sources and stubs are read,
and nothing is run. The first of the releases may have names that are older still.
"""

import json
import re
import sys
from functools import cache
from pathlib import Path

from clampgrad._torch.private_names import PRIVATE

RECORD = Path(__file__).parent.parent / "docs/private_names.json"


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
    record = {"releases": [".".join(map(str, r)) for r, _ in trees], "since": found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
