"""The stamp that a compiled library and the package around it share, if they belong together.

The package compares (clampgrad/_implementation/stamp.py), so that a library which
another build left is not used.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from buildtools.library import VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("csrc", "codegen")
SUFFIXES = (".cpp", ".cu", ".cuh", ".h", ".py", ".yaml")


def sources(root: Path = ROOT) -> str:
    """A hash of all that a library is generated and compiled from."""
    files = [root / "conventions.yaml", root / "derivatives.yaml"]
    for folder in FOLDERS:
        files += [p for p in (root / folder).rglob("*") if p.suffix in SUFFIXES]
    digest = hashlib.sha256()
    for name, path in sorted((p.relative_to(root).as_posix(), p) for p in files):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def header(torch: str) -> str:
    """For libclampgrad and for modules; `torch` is a release, as "2.13.0"."""
    release = ".".join(torch.split(".")[:2])
    text = f"clampgrad-stamp: version={VERSION} torch={release} sources={sources()}"
    return f'#pragma once\n\nnamespace clampgrad {{\nconstexpr char kStamp[] = "{text}";\n}}\n'
