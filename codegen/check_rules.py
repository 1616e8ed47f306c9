"""Compiles the rules for one value, which compares them with conventions.yaml, in seconds.

python -m codegen.check_rules    after an edit of csrc/kernels/rules/ or of conventions.yaml
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from torch.utils.cpp_extension import include_paths

from .generate import generate

ROOT = Path(__file__).resolve().parents[1]


def check_rules(tree: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What the compiler says of the rules of a source tree; `out` gets what is generated."""
    generate(tree, out)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only"]
    command += [f"-I{path}" for path in (out, tree / "csrc", *include_paths())]
    file = str(tree / "csrc/kernels/rules/check.cpp")
    return subprocess.run([*command, file], capture_output=True, text=True)


if __name__ == "__main__":
    result = check_rules(ROOT, ROOT / "build/generated/rules")
    print(result.stderr or "The rules agree with conventions.yaml.")
    sys.exit(result.returncode)
