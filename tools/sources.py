"""Which files the build compiles. setup.py takes all of them, CMakeLists.txt those without Python.

    python tools/sources.py OUT

generates code in the folder OUT and prints, for CMake, the release of torch that it is for, where that
torch has its CMake package, for the CUDA kernels, if any, the toolkit, the architectures and what nvcc makes
for them, and the sources.

Most of the time of a file goes into torch's headers: seven to fifteen seconds, whatever else it holds.
So the files of a room are compiled together, as one that includes them all. CLAMPGRAD_UNITY=0 compiles
each by itself, which finds a missing include.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codegen.generate import generate  # noqa: E402
from tools.switches import is_set  # noqa: E402

# Compiled with others: a unit for each of these, and one for the rest of csrc/.
ROOMS = ("pin", "python")
# Generated files with a unit of their own. The front doors are with csrc/, so that what they call is inlined.
GENERATED = {
    "Functions": "autograd",
    "VariableType": "autograd",
    "Operators": "operators",
    "Register": "operators",
}


def sources(out: Path, cuda: bool) -> list[Path]:
    """What is to be compiled, after code was generated in `out`."""
    suffixes = (".cpp", ".cu") if cuda else (".cpp",)
    written = sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in suffixes)
    files = [*written, *generate(ROOT, out, cuda)]
    return together(files, out) if is_set("CLAMPGRAD_UNITY", "1") else files


def together(files: list[Path], out: Path) -> list[Path]:
    """Files that include them, and those that stand alone."""
    units: dict[str | Path, list[Path]] = {}
    for path in files:
        units.setdefault(unit_of(path), []).append(path)
    compiled = []
    for unit, members in units.items():
        if isinstance(unit, Path):
            compiled.append(unit)
            continue
        compiled.append(out / "units" / f"{unit}.cpp")
        write(compiled[-1], "".join(f'#include "{included(p, out)}"\n' for p in members))
    return sorted(compiled)


def included(path: Path, out: Path) -> str:
    """Its name for the compiler, which looks in both folders."""
    folder = out if path.is_relative_to(out) else ROOT / "csrc"
    return path.relative_to(folder).as_posix()


def unit_of(path: Path) -> str | Path:
    if path.suffix == ".cu" or path.name.startswith("loops_"):
        return path  # csrc/kernels/cpu/loops.h says why
    if needs_python(path):
        return "python"
    if path.stem in GENERATED:
        return GENERATED[path.stem]
    room = path.relative_to(ROOT / "csrc").parts[0] if path.is_relative_to(ROOT / "csrc") else ""
    return room if room in ROOMS else "csrc"


def write(path: Path, text: str) -> None:
    """What has not changed is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def needs_python(path: Path) -> bool:
    return path.parent.name == "python" or path.name.startswith("python")


if __name__ == "__main__":
    import torch

    from tools.cuda_build import code, cuda_build

    cuda, why = cuda_build()
    print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", file=sys.stderr)
    files = [p.as_posix() for p in sources(Path(sys.argv[1]), cuda) if not needs_python(p)]
    release = torch.__version__.split("+")[0]
    toolkit = os.environ["CUDA_HOME"] if cuda else "none"
    architectures = os.environ["TORCH_CUDA_ARCH_LIST"].replace(";", " ") if cuda else "none"
    package = torch.utils.cmake_prefix_path
    made = code() if cuda else "none"
    print(";".join([release, package, toolkit, architectures, made, *files]), end="")
