"""Finds the installed compiled libraries, and the one that fits the installed torch."""

import re
import sys
import warnings
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import torch

from clampgrad._implementation.build import LIBRARY, MISSING
from clampgrad._implementation.stamp import minor, why_stale

# In a folder for each torch, libclampgrad and a module of each Python that
# links it (buildtools/library.py).
LIBRARIES = Path(__file__).parents[1] / "_lib"
# The advice if no library fits.
REINSTALL_ADVICE = (
    "install a wheel for this torch and this Python, or, in the source tree, `pip install --force-reinstall --no-deps "
    "--no-build-isolation .`"
)


class NoLibrary(ImportError):
    """Says why no compiled library fits the installed torch."""


def libraries() -> dict[str, list[str]]:
    """Returns the installed compiled libraries: folder under _lib -> the Pythons that it has a
    module for, as "3.12". A folder is called torch_2_13, or torch_2_13_cu13 where it
    has kernels for CUDA 13 too."""
    folders = sorted(LIBRARIES.iterdir()) if LIBRARIES.is_dir() else []
    pythons_by_folder = {
        f.name: [*map(python_of, f.glob("_C.*"))] for f in folders if is_name(f.name)
    }
    return {
        name: sorted(pythons, key=as_numbers)
        for name, pythons in pythons_by_folder.items()
        if pythons
    }


def load_library() -> ModuleType:
    """Returns the module for the installed torch and this Python. The minor release of torch
    decides, and the CUDA it was built for. Patch releases share a library, and so do a torch
    for the CPU and one for CUDA."""
    pythons_by_folder = libraries()
    cpu_folder = "torch_" + minor(torch.__version__).replace(".", "_")
    if not pythons_by_folder:
        raise NoLibrary(
            "this installation has no compiled library" + (f": {MISSING}" if MISSING else "")
        )
    cuda = torch.version.cuda
    cuda_folder = f"{cpu_folder}_cu{cuda.split('.')[0]}" if cuda else cpu_folder
    folders = dict.fromkeys((cuda_folder, cpu_folder))
    fitting = [name for name in folders if name in pythons_by_folder]
    if not fitting:
        there = " and ".join(dict.fromkeys(describe_folder(folder) for folder in pythons_by_folder))
        raise NoLibrary(
            f"the compiled libraries are for {there}, and the installed torch is {torch.__version__}"
        )
    refused = []
    for name in fitting:
        module = load(name, pythons_by_folder[name])
        if isinstance(module, ModuleType):
            break
        refused.append(module)
    else:
        raise NoLibrary(refused[0])
    # Those with kernels may be of clampgrad-cuda, which is a distribution of its own.
    why, remedy = refused[:1], "`pip install --upgrade clampgrad clampgrad-cuda`"
    with_kernels = [name for name in pythons_by_folder if "_cu" in name]
    if cuda and with_kernels and cuda_folder not in pythons_by_folder:
        there = " and ".join(map(describe_folder, with_kernels))
        why = [f"they are for {there}, and this is {describe_folder(cuda_folder)}"]
        if any(name.startswith(f"{cpu_folder}_cu") for name in with_kernels):
            remedy = "build clampgrad from source"
    if why:
        warnings.warn(
            f"clampgrad runs without its CUDA kernels: {why[0]}. To mend it, {remedy}.",
            stacklevel=4,
        )
    sys.modules["clampgrad._C"] = module  # the name that its stub has
    return module


def load(name: str, pythons: list[str]) -> ModuleType | str:
    """Returns the module in a folder, or why it cannot be loaded here."""
    if refused := find_load_problem(name, pythons):
        return refused
    try:
        return import_module(f"clampgrad._lib.{name}._C")
    except ImportError as error:
        return f"the compiled library for {describe_folder(name)} does not load ({error})"


def find_load_problem(name: str, pythons: list[str]) -> str | None:
    """Returns why the library cannot be loaded, as far as its files show, or None."""
    modules = (LIBRARIES / name / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES)
    module = next(filter(Path.is_file, modules), None)
    if module is None:
        here = python_of(Path("_C" + EXTENSION_SUFFIXES[0]))
        return f"the compiled library for {describe_folder(name)} is for Python {', '.join(pythons)}, and this is Python {here}"
    for part in (module.with_name(LIBRARY), module):
        if stale := why_stale(part, minor(torch.__version__)):
            return f"the compiled library for {describe_folder(name)} is not used, because {stale}"
    return None


def is_name(folder: str) -> bool:
    return re.fullmatch(r"torch_\d+_\d+(_cu\d+)?", folder) is not None


def python_of(module: Path) -> str:
    """Returns "3.12" for "_C.cpython-312-x86_64-linux-gnu.so"."""
    tag = module.name.split(".")[1]
    match = re.match(r"cpython-(\d)(\w+)", tag)
    return f"{match[1]}.{match[2]}" if match else tag


def as_numbers(version: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", version))]


def describe_folder(folder: str) -> str:
    """Returns "torch 2.13 with CUDA 13" for "torch_2_13_cu13"."""
    _, major, minor, *cuda = folder.split("_")
    return f"torch {major}.{minor}" + "".join(f" with CUDA {c[2:]}" for c in cuda)
