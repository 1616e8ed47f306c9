"""clampgrad info: versions, which implementation runs here, why, and how to get the other."""

import argparse
import platform
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._implementation.build import VERSION
from clampgrad._implementation.library import TO_MEND, libraries
from clampgrad._pin.installed import patched
from clampgrad._pin.state import current
from clampgrad.cli.output import write, write_json


def instruction_set(compiled: bool) -> str:
    """What the kernels of the CPU use here. ATen's choice decides for the compiled ones too
    (csrc/kernels/fused.cpp); the portable implementation runs torch's kernels."""
    chosen = torch.backends.cpu.get_cpu_capability()
    return chosen if compiled else f"{chosen} (torch's kernels)"


def facts() -> dict[str, Any]:
    compiled = _implementation.name == "compiled"
    folder = _implementation.functions.__name__.split(".")[-2] if compiled else ""
    other = "set CLAMPGRAD_PORTABLE=1" if compiled else TO_MEND
    if _implementation.why.startswith("CLAMPGRAD_PORTABLE") and libraries():
        other = "unset CLAMPGRAD_PORTABLE"
    return {
        "clampgrad": VERSION,
        "implementation": _implementation.name,
        "because": _implementation.why,
        "libraries": list(libraries()),
        "torch": torch.__version__,
        "cuda_kernels": "_cu" in folder,
        "instruction_set": instruction_set(compiled),
        "to_change": other,
        "patched": patched(),
        "pinned": current(),
        "python": platform.python_version(),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad info", description="Show versions, and which implementation runs here and why."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = facts()
    if parser.parse_args(arguments).json:
        write_json(found)
    else:
        width = max(map(len, found))
        lines = (f"{k.replace('_', ' '):{width}}  {shown(v)}" for k, v in found.items())
        write("\n".join(lines))
    return 0


def shown(value: Any) -> str:
    """A value as text for people."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
