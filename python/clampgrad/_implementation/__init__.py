"""Chooses the implementation: the compiled extension or, in plain PyTorch, the portable one.

Both have the functions of `_C.pyi`, and this module has those of the one that was chosen: the rest
of the package calls `_implementation.clamp` and never asks which it is.

    CLAMPGRAD_PORTABLE=1           the portable one, whatever was compiled
    CLAMPGRAD_REQUIRE_COMPILED=1   the compiled one, or an ImportError
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

try:
    from clampgrad._implementation.build import MISSING
except ModuleNotFoundError:
    raise ImportError(
        f"{Path(__file__).parents[2]} is clampgrad's source tree, which was not built: install it (`pip install "
        "--no-build-isolation .` in the folder above), and import it from elsewhere, without that folder in PYTHONPATH"
    ) from None
from clampgrad._implementation.environment import is_set
from clampgrad._implementation.library import REINSTALL_ADVICE, NoLibrary, libraries, load_library
from clampgrad._implementation.stamp import minor
from clampgrad._torch.compiler import skip_own_frames
from clampgrad._torch.private_names import check
from clampgrad._torch.torchs_functions import CLAMP_FUNCTIONS, EXTREMA

if TYPE_CHECKING:
    from clampgrad._C import *  # noqa: F403

FUNCTIONS = (
    *CLAMP_FUNCTIONS,
    *EXTREMA,
    *("Block", "pin_canonical_name", "pin_thread_block", "pin_set_thread_block"),
    *("pin_set_process", "pin_current", "pin_set_block_resolver", "pin_set_resolver_enabled"),
    *("pin_register_kernels", "pin_call_counts", "pin_observe"),
)


def choose() -> tuple[str, str, ModuleType]:
    """Returns the name of the implementation, why it was chosen, and its functions."""
    portable, required = is_set("CLAMPGRAD_PORTABLE"), is_set("CLAMPGRAD_REQUIRE_COMPILED")
    if hasattr(torch.ops.clampgrad, "_registered_by"):
        raise ImportError(
            "this process has imported clampgrad before, and has removed it from sys.modules; its operators "
            "stay: start the process again"
        )
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
        reason = "CLAMPGRAD_PORTABLE is set"
    else:
        try:
            library = load_library()
            return "compiled", f"it was compiled for torch {minor(torch.__version__)}", library
        except NoLibrary as error:
            reason = str(error)
        if required:
            raise ImportError(
                f"{reason}; CLAMPGRAD_REQUIRE_COMPILED is set. To mend it, {REINSTALL_ADVICE}"
            )
        if libraries() or MISSING:  # otherwise it was built without one on purpose
            warnings.warn(
                f"clampgrad runs its portable implementation, in plain PyTorch: {reason}. To mend it, "
                f"{REINSTALL_ADVICE}. CLAMPGRAD_PORTABLE=1 asks for it, without this warning.",
                stacklevel=2,
            )
    check("portable")
    import_module("clampgrad._implementation.portable.operators")
    portable_functions = import_module("clampgrad._implementation.portable")
    # The kernels in Python consist of the functions of these packages.
    skip_own_frames("clampgrad._contract", "clampgrad._torch", __name__)
    return "portable", reason, portable_functions


check("package")
name, reason, functions = choose()
torch.ops.clampgrad._registered_by = functions

globals().update({f: getattr(functions, f) for f in FUNCTIONS})


def decline(*_: object) -> None:
    """Stands in for `clamp_plain` in the portable implementation. Returns None, as `clamp_plain`
    does for a call that it does not handle: activations.py then takes the general path."""


globals().update(clamp_plain=getattr(functions, "clamp_plain", decline))

# The functions that people call, which the portable implementation hands to subclasses.
PUBLIC: dict[str, Callable[..., Any]] = getattr(functions, "PUBLIC", {})
