"""The files of a folder compiled together, as one file that includes them all.

Most of the time of a file goes into torch's headers: seven to fifteen seconds, whatever else it
holds. CLAMPGRAD_UNITY=0 compiles each by itself, which finds a missing include.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Compiled with others: a unit for each of these, and one for the rest of csrc/.
FOLDERS = ("pin", "python")
# Generated files with a unit of their own. The front doors are with csrc/, so
# that what they call is inlined.
GENERATED = {
    "Functions": "autograd",
    "VariableType": "autograd",
    "Operators": "operators",
    "Register": "operators",
}


def group_into_units(files: list[Path], out: Path) -> list[Path]:
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
        write(compiled[-1], "".join(f'#include "{include_path(p, out)}"\n' for p in members))
    return sorted(compiled)


def include_path(path: Path, out: Path) -> str:
    """The name of the file for the compiler, which looks in both folders."""
    folder = out if path.is_relative_to(out) else ROOT / "csrc"
    return path.relative_to(folder).as_posix()


def unit_of(path: Path) -> str | Path:
    if path.suffix == ".cu" or path.name.startswith("loops_"):
        return path  # these have flags of their own
    if path.name == "stamp.cpp":
        return path  # every change of a source changes it, and it takes no time
    if needs_python(path):
        return "python"
    if path.stem in GENERATED:
        return GENERATED[path.stem]
    folder = path.relative_to(ROOT / "csrc").parts[0] if path.is_relative_to(ROOT / "csrc") else ""
    return folder if folder in FOLDERS else "csrc"


def needs_python(path: Path) -> bool:
    return path.parent.name == "python" or path.name.startswith("python")


def write(path: Path, text: str) -> None:
    """Leaves a file alone that has this text, so that it is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
