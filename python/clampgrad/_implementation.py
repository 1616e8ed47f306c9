"""Which implementation runs: the compiled extension or, in plain PyTorch, the portable one.

Both have the functions of `_C.pyi`, and this module has those of the one that was chosen: the rest of
the package calls `_implementation.clamp` and never asks which it is.

    CLAMPGRAD_PORTABLE=1           the portable one, whatever was compiled
    CLAMPGRAD_REQUIRE_COMPILED=1   the compiled one, or an ImportError
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from clampgrad._C import *  # noqa: F403

FUNCTIONS = (
    *("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"),
    *("maximum", "minimum", "fmax", "fmin"),
    *("pin_code", "pin_thread", "pin_process", "pin_current", "pin_name", "pin_operators"),
)


class NoLibrary(ImportError):
    """Why no compiled library serves the torch that is here."""


def minor(release: str) -> str:
    """What binaries are compatible within: "2.13" of "2.13.0+cpu"."""
    return ".".join(release.split(".")[:2])


def libraries() -> dict[str, str]:
    """The compiled libraries that are installed: of each minor release of torch, the module."""
    try:
        from clampgrad._built_for import TORCH
    except ImportError:
        return {}
    return {minor(TORCH): "clampgrad._C"}


def load_library() -> ModuleType:
    """The one for the torch that is here."""
    found, here = libraries(), minor(torch.__version__)
    if not found:
        raise NoLibrary("this installation has no compiled library")
    if here not in found:
        there = " and ".join(found)
        raise NoLibrary(
            f"the compiled library is for torch {there}, and here is torch {torch.__version__}"
        )
    try:
        return import_module(found[here])
    except ImportError as error:
        raise NoLibrary(f"the compiled library for torch {here} does not load ({error})") from error


def choose() -> tuple[str, str, ModuleType]:
    """The name of the implementation, why it was chosen, and its functions."""
    portable, required = (
        os.environ.get(name, "0") not in ("", "0")
        for name in ("CLAMPGRAD_PORTABLE", "CLAMPGRAD_REQUIRE_COMPILED")
    )
    if torch._C._dispatch_has_kernel("clampgrad::clamp"):
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
            raise ImportError(
                f"{why}, and CLAMPGRAD_REQUIRE_COMPILED is set: install a wheel for this torch, or, in "
                "the source tree, `pip install --force-reinstall --no-deps --no-build-isolation .`"
            )
        if libraries():  # who installed it without any knows
            warnings.warn(
                f"clampgrad runs its portable implementation, in plain PyTorch: {why}. "
                "CLAMPGRAD_PORTABLE=1 asks for it, without this warning.",
                stacklevel=2,
            )
    return "portable", why, import_module("clampgrad._portable")


name, why, _functions = choose()
globals().update({f: getattr(_functions, f) for f in FUNCTIONS})
