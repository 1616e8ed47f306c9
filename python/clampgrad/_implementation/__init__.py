"""Which implementation runs: the compiled extension or, in plain PyTorch, the portable one.

Both have the functions of `_C.pyi`, and this module has those of the one that was chosen: the rest of
the package calls `_implementation.clamp` and never asks which it is.

    CLAMPGRAD_PORTABLE=1           the portable one, whatever was compiled
    CLAMPGRAD_REQUIRE_COMPILED=1   the compiled one, or an ImportError
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from clampgrad._build import MISSING
from clampgrad._implementation.elf import is_cut_off
from clampgrad._implementation.environment import one_sentence
from clampgrad._implementation.registered import register, registered
from clampgrad._implementation.stamp import minor, why_stale
from clampgrad._torch.private_names import check

if TYPE_CHECKING:
    from clampgrad._C import *  # noqa: F403

FUNCTIONS = (
    *("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"),
    *("maximum", "minimum", "fmax", "fmin"),
    *("pin_code", "pin_name", "pin_thread", "pin_process", "pin_current", "pin_ask"),
    *("pin_register", "pin_reached"),
)


# What to do where no library serves.
TO_MEND = (
    "install a wheel for this torch, or, in the source tree, `pip install --force-reinstall --no-deps "
    "--no-build-isolation .`"
)


class NoLibrary(ImportError):
    """Why no compiled library serves the torch that is here."""


def libraries() -> dict[str, str]:
    """The compiled libraries that are installed: folder under _lib -> module. A folder is called
    torch_2_13, or torch_2_13_cu13 where it has kernels for CUDA 13 too."""
    folders = sorted(Path(__file__).parents[1].joinpath("_lib").glob("torch_*"))
    return {
        folder.name: f"clampgrad._lib.{folder.name}._C"
        for folder in folders
        if re.fullmatch(r"torch_\d+_\d+(_cu\d+)?", folder.name)
        and any((folder / f"_C{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)
    }


def load_library() -> ModuleType:
    """The one for the torch that is here: its minor release decides, and the CUDA it is built for.
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
            f"the compiled libraries are for {there}, and here is torch {torch.__version__}"
        )
    file = find_spec(found[name])
    if file and file.origin and is_cut_off(file.origin):
        raise NoLibrary(f"the compiled library for {words(name)} is cut off ({file.origin})")
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
    """ "torch 2.13 with CUDA 13" of "torch_2_13_cu13"."""
    _, major, minor, *cuda = folder.split("_")
    return f"torch {major}.{minor}" + "".join(f" with CUDA {c[2:]}" for c in cuda)


def is_set(variable: str) -> bool:
    value = os.environ.get(variable) or "0"
    if value not in ("0", "1"):
        raise ImportError(f"{variable}={value!r}: it is 1 or, as when it is not set, 0")
    return value == "1"


def choose() -> tuple[str, str, ModuleType]:
    """The name of the implementation, why it was chosen, and its functions."""
    portable, required = is_set("CLAMPGRAD_PORTABLE"), is_set("CLAMPGRAD_REQUIRE_COMPILED")
    if earlier := registered(portable, required):
        return earlier
    if hasattr(torch.ops.clampgrad, "clamp"):
        raise ImportError(
            "another library, libclampgrad perhaps, has registered torch.ops.clampgrad in this "
            "process: use either that or this package"
        )
    if portable and required:
        raise ImportError(
            "CLAMPGRAD_PORTABLE and CLAMPGRAD_REQUIRE_COMPILED are both set: unset one of them"
        )
    if portable:
        why = "CLAMPGRAD_PORTABLE is set"
    else:
        try:
            return (
                "compiled",
                f"it was compiled for torch {minor(torch.__version__)}",
                load_library(),
            )
        except NoLibrary as error:
            why = str(error)
        if required:
            raise ImportError(f"{why}; CLAMPGRAD_REQUIRE_COMPILED is set. To mend it, {TO_MEND}")
        if libraries() or MISSING:  # who asked for none knows
            warnings.warn(
                f"clampgrad runs its portable implementation, in plain PyTorch: {why}. To mend it, "
                f"{TO_MEND}. CLAMPGRAD_PORTABLE=1 asks for it, without this warning.",
                stacklevel=2,
            )
    check("portable")
    import_module("clampgrad._implementation.portable.library")
    return "portable", why, import_module("clampgrad._implementation.portable")


with one_sentence(ImportError):
    check("package")
    name, why, _functions = choose()
    register(name, why, _functions)


def instruction_set(compiled: bool) -> str:
    """What the kernels of the CPU use here. ATen's choice decides for the compiled ones too
    (csrc/kernels/cpu/kernels.cpp); the portable implementation runs torch's kernels."""
    chosen = torch.backends.cpu.get_cpu_capability()
    if compiled and sys.platform == "win32":
        return "DEFAULT"  # MSVC has no vector extension
    return chosen if compiled else f"{chosen} (torch's kernels)"


def info() -> dict[str, Any]:
    """Which implementation runs here, why, and how to get the other: what `clampgrad info` says."""
    compiled = name == "compiled"
    folder = _functions.__name__.split(".")[-2] if compiled else ""
    other = (
        "set CLAMPGRAD_PORTABLE=1"
        if compiled
        else "unset CLAMPGRAD_PORTABLE"
        if why.startswith("CLAMPGRAD_PORTABLE") and libraries()
        else TO_MEND
    )
    return {
        "implementation": name,
        "because": why,
        "libraries": list(libraries()),
        "torch": torch.__version__,
        "cuda_kernels": "_cu" in folder,
        "instruction_set": instruction_set(compiled),
        "pin_sees": "torch's operators, whoever calls them"
        if compiled
        else "calls from Python, in the threads that are pinned",
        "to_change": other,
    }


# What a pin does not reach here, in words.
PIN_MISSES: str = getattr(_functions, "PIN_MISSES", "")


def pin_partial(code: int) -> int:
    """The same pin where partial reach is accepted; it is another one where the reach is partial."""
    return _functions.pin_partial(code) if PIN_MISSES else code


globals().update({f: getattr(_functions, f) for f in FUNCTIONS})
