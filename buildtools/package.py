"""Puts the files that are not Python into the package, and keeps everything else out."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path

from setuptools.command.build import build
from setuptools.command.build_py import build_py

from buildtools.library import LIBRARY
from buildtools.pip_nvcc import OLDEST, PACKAGES
from buildtools.stamp import sources
from buildtools.switches import is_set, portable
from buildtools.torch_here import find_missing_requirement, refuse_newer

ROOT = Path(__file__).resolve().parent.parent


def is_public(schema: str) -> bool:
    return not schema.startswith("_") and "_backward(" not in schema


def types_of_names(table: dict) -> str:
    """For type checkers: the names and aliases, and those of the exact conventions, which are what
    maximum and its relatives take."""
    canonical = {name: name for name in table["conventions"]} | table["aliases"]
    pseudo = table["pseudo_gradients"]["rows"][0]
    exact = ", ".join(repr(n) for n, of in canonical.items() if of not in pseudo)
    every = ", ".join(map(repr, canonical))
    return f"""from typing import Literal, TypeAlias

ExactGradient: TypeAlias = Literal[{exact}]
Gradient: TypeAlias = Literal[{every}]
"""


def read_messages(header: str) -> dict[str, str]:
    """Reads the texts of csrc/base/messages.h. C++ joins neighbouring strings as Python does."""
    constants = re.findall(r'constexpr char (\w+)\[\] =((?:\s*"[^"]*")+);', header)
    assert len(constants) == header.count("constexpr char"), "a text of another form"
    return {name: ast.literal_eval(f"({text})") for name, text in constants}


def why_portable() -> str | None:
    """Why there is no library where one was wanted. The package repeats it when it is imported."""
    if portable():
        return None
    refuse_newer()
    missing = find_missing_requirement()
    if missing and is_set("CLAMPGRAD_REQUIRE_COMPILED"):
        raise SystemExit(f"CLAMPGRAD_REQUIRE_COMPILED=1, but {missing}")
    if missing:
        line = "!" * 80
        print(f"{line}\nclampgrad: NO COMPILED LIBRARY: {missing}\n{line}", file=sys.stderr)
    return missing


class Build(build):
    """setuptools packs all that is in its folder, also what an earlier build has left there."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib, "clampgrad"), ignore_errors=True)
        super().run()


class Package(build_py):
    """Puts into the package what stands elsewhere in the sources.

    The contract and the schemas, in a form that needs no PyYAML.
    """

    def run(self) -> None:
        missing = why_portable()
        import yaml  # metadata do without

        super().run()
        package = Path("python" if self.editable_mode else self.build_lib, "clampgrad")
        facts = {
            "VERSION": self.distribution.get_version(),
            "SOURCES": sources(),
            "LIBRARY": LIBRARY,
            "MISSING": missing,
            "NVCC": PACKAGES,
            "NVCC_SINCE": OLDEST,
        }
        text = "".join(f"{name} = {value!r}\n" for name, value in facts.items())
        (package / "_implementation/build.py").write_text(text)
        table = yaml.safe_load((ROOT / "conventions.yaml").read_text())
        (package / "_contract/table.json").write_text(json.dumps(table))
        (package / "_contract/gradients.py").write_text(types_of_names(table))
        messages = read_messages((ROOT / "csrc/base/messages.h").read_text())
        (package / "_contract/messages.json").write_text(json.dumps(messages))
        operators = yaml.safe_load((ROOT / "csrc" / "native_functions.yaml").read_text())
        schemas = [o["func"] for o in operators if is_public(o["func"])]
        (package / "_contract/schemas.json").write_text(json.dumps(schemas))
