"""Which files the build compiles. setup.py takes all of them, CMakeLists.txt those without Python.

    python tools/sources.py OUT

generates code in the folder OUT and prints, for CMake, the release of torch that it is for, where that
torch has its CMake package, for the CUDA kernels, if any, the toolkit and the architectures, and the
sources.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codegen.generate import generate  # noqa: E402


def written(cuda: bool) -> list[Path]:
    suffixes = (".cpp", ".cu") if cuda else (".cpp",)
    return sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in suffixes)


def generated(out: Path, cuda: bool) -> list[Path]:
    return generate(ROOT, out, cuda)


def needs_python(path: Path) -> bool:
    return path.parent.name == "python" or path.name.startswith("python_")


if __name__ == "__main__":
    import torch

    from tools.cuda_build import cuda_build

    cuda, why = cuda_build()
    print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", file=sys.stderr)
    files = [*written(cuda), *generated(Path(sys.argv[1]), cuda)]
    sources = [p.as_posix() for p in files if not needs_python(p)]
    release = torch.__version__.split("+")[0]
    toolkit = os.environ["CUDA_HOME"] if cuda else "none"
    architectures = os.environ["TORCH_CUDA_ARCH_LIST"].replace(";", " ") if cuda else "none"
    package = torch.utils.cmake_prefix_path
    print(";".join([release, package, toolkit, architectures, *sources]), end="")
