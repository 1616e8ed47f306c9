"""Finds the installed compiled libraries, and the one that fits the installed torch."""

import re
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

from clampgrad._implementation.build import MISSING
from clampgrad._implementation.stamp import minor, why_stale

# The advice if no library fits.
TO_MEND = (
    "install a wheel for this torch, or, in the source tree, `pip install --force-reinstall --no-deps "
    "--no-build-isolation .`"
)


class NoLibrary(ImportError):
    """Why no compiled library fits the installed torch."""


def libraries() -> dict[str, str]:
    """The installed compiled libraries: folder under _lib -> module. A folder is called
    torch_2_13, or torch_2_13_cu13 where it has kernels for CUDA 13 too."""
    all_of_them = Path(__file__).parents[1] / "_lib"
    folders = sorted(all_of_them.iterdir()) if all_of_them.is_dir() else []
    return {
        folder.name: f"clampgrad._lib.{folder.name}._C"
        for folder in folders
        if re.fullmatch(r"torch_\d+_\d+(_cu\d+)?", folder.name)
        and any((folder / f"_C{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)
    }


def load_library() -> ModuleType:
    """The library for the installed torch. The minor release of torch decides, and the CUDA it was built for.
    Patch releases share a library, and so do a torch for the CPU and one for CUDA."""
    found, here = libraries(), "torch_" + minor(torch.__version__).replace(".", "_")
    if not found:
        raise NoLibrary(
            "this installation has no compiled library" + (f": {MISSING}" if MISSING else "")
        )
    cuda = f"{here}_cu{torch.version.cuda.split('.')[0]}" if torch.version.cuda else here
    name = cuda if cuda in found else here
    if name not in found:
        there = " and ".join(dict.fromkeys(words(folder) for folder in found))
        raise NoLibrary(
            f"the compiled libraries are for {there}, and the installed torch is {torch.__version__}"
        )
    file = find_spec(found[name])
    if file and file.origin and (stale := why_stale(file.origin, minor(torch.__version__))):
        raise NoLibrary(f"the compiled library for {words(name)} is not used, because {stale}")
    try:
        library = import_module(found[name])
    except ImportError as error:
        raise NoLibrary(
            f"the compiled library for {words(name)} does not load ({error})"
        ) from error
    sys.modules["clampgrad._C"] = library  # the name that its stub has
    return library


def words(folder: str) -> str:
    """ "torch 2.13 with CUDA 13" for "torch_2_13_cu13"."""
    _, major, minor, *cuda = folder.split("_")
    return f"torch {major}.{minor}" + "".join(f" with CUDA {c[2:]}" for c in cuda)
