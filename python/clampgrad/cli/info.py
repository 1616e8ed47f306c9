"""clampgrad info: versions, which implementation runs here, and why."""

import argparse
import platform
from pathlib import Path
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._implementation.build import NVCC, NVCC_SINCE, VERSION
from clampgrad._implementation.library import libraries
from clampgrad._pin.installed import describe_patch
from clampgrad._pin.state import current_pin_name
from clampgrad.cli.output import write, write_json


def facts() -> dict[str, Any]:
    compiled = _implementation.name == "compiled"
    folder = Path(_implementation.functions.__file__ or "").parent.name if compiled else ""
    kernels = "_cu" in folder
    return {
        "clampgrad": VERSION,
        "implementation": _implementation.name,
        "because": _implementation.reason,
        "libraries": list(libraries()),
        "torch": torch.__version__,
        "cuda_kernels": kernels,
        "cuda_compiler": None if kernels else cuda_compiler(),
        "patched": describe_patch(),
        "pinned": current_pin_name(),
        "python": platform.python_version(),
    }


def cuda_compiler() -> str | None:
    """Returns the command that installs a compiler for the CUDA of the
    installed torch, where pip has one."""
    cuda = torch.version.cuda
    if cuda is None or int(cuda.split(".")[0]) < NVCC_SINCE:
        return None
    return f'pip install "{NVCC}=={cuda}.*"'


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad info", description="Show versions, and which implementation runs here and why."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    info = facts()
    if parser.parse_args(arguments).json:
        write_json(info)
    else:
        if command := info.pop("cuda_compiler"):
            info["cuda_kernels"] = (
                f"no; to build them, {command}, and install clampgrad again with CLAMPGRAD_CUDA=1"
            )
        width = max(map(len, info))
        lines = (f"{k.replace('_', ' '):{width}}  {shown(v)}" for k, v in info.items())
        write("\n".join(lines))
    return 0


def shown(value: Any) -> str:
    """Formats a value for people."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
