"""The torch that answers must be the one that was built: its folders, version and libraries."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

BUILT = "CLAMPGRAD_BUILT"  # the variable that says to a program which torch that is


def identity(torch: Any) -> dict[str, Any]:
    # Its Python, and what is compiled: an editable install may have them in two folders.
    folders = list(dict.fromkeys(os.path.dirname(f) for f in (torch.__file__, torch._C.__file__)))
    libraries = sorted(f for folder in folders for f in Path(folder, "lib").glob("libtorch*.so"))
    stats = {str(f): f.stat() for f in libraries}
    return {
        "folders": folders,
        "version": str(torch.__version__),
        "libraries": {file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()},
    }


def difference() -> str:
    """What another torch this process has imported, if it has."""
    if "torch" not in sys.modules:
        return ""
    wanted, found = json.loads(os.environ[BUILT]), identity(sys.modules["torch"])
    other = {key: found[key] for key in wanted if found[key] != wanted[key]}
    return f"another torch answers than the one that was built: {other}, not {wanted}" * bool(other)


def check() -> None:
    if other := difference():
        sys.exit(other)


if __name__ == "__main__":
    import torch

    print(json.dumps(identity(torch)))
