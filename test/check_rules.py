"""Compiles the rules for one value, which compares them with conventions.yaml: seconds, and no build.

python test/check_rules.py    after an edit of csrc/kernels/rules/ or of conventions.yaml
"""

import os
import subprocess
import sys
from pathlib import Path

from torch.utils.cpp_extension import include_paths

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] if __name__ == "__main__" else []


def check_rules(tree: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What the compiler says of the rules of a tree; `out` gets Contract.h."""
    from codegen.generate import generate

    generate(tree, out)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only"]
    command += [f"-I{path}" for path in (out, tree / "csrc", *include_paths())]
    file = str(tree / "csrc/kernels/rules/check.cpp")
    return subprocess.run([*command, file], capture_output=True, text=True)


if __name__ == "__main__":
    found = check_rules(ROOT, ROOT / "build/generated/rules")
    print(found.stderr or "The rules agree with conventions.yaml.", file=sys.stderr)
    sys.exit(found.returncode)
