"""This checkout on the path. It comes before what an editable PyTorch adds: its own checkout, which has `tools` too."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT))

# What the package is built from. More may lie in a checkout: environments, or PyTorch where it was cloned there.
PACKAGE = (
    *(
        "LICENSE",
        "MANIFEST.in",
        "README.md",
        "codegen",
        "conventions.yaml",
        "csrc",
        "derivatives.yaml",
    ),
    *("patches", "pyproject.toml", "python", "setup.py", "tools", "torch_releases.txt"),
)
