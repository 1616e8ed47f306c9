"""Finds who makes a call: the file and line outside of torch, the path of the module, and the
function of torch that the line calls."""

import os
import sys
from pathlib import Path
from traceback import walk_stack
from types import CodeType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from clampgrad._torch.private_names import check, require_name

check("audit")
OURS = Path(__file__).parents[2]
AUDIT = f"{Path(__file__).parent}{os.sep}"
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, OURS))
CALL_MODULE = require_name("torch.nn:Module._call_impl").__code__

_names_by_root: WeakKeyDictionary[nn.Module, dict[int, str]] = WeakKeyDictionary()


class Caller(NamedTuple):
    file: str
    line: int
    module: str  # its path from the module that was called, "" outside of modules


class OutermostFunction(NamedTuple):
    """The function of torch that the program calls, which makes the current call."""

    function: Any  # None if no function mode handled its call
    name: str  # "" if it is not known


# Where the functions that people call are, by their names.
FOLDER = f"{Path(torch.__file__).parent}{os.sep}"
AOT_AUTOGRAD = f"{FOLDER}_functorch{os.sep}_aot_autograd{os.sep}"
PUBLIC = tuple(
    f"{FOLDER}{path.replace('/', os.sep)}"
    for path in (
        *("nn/functional.py", "nn/init.py", "nn/utils/", "functional.py", "_tensor.py"),
        *("distributions/", "optim/", "autograd/", "special/", "linalg/", "fft/", "signal/"),
    )
)


def find_caller() -> Caller:
    """Returns who makes the current call."""
    return find_call_origin()[0]


def find_call_origin() -> tuple[Caller, OutermostFunction]:
    """Returns who makes the current call, and by which function of torch."""
    place, modules, outermost = None, [], OutermostFunction(None, "")
    for frame, line in walk_stack(sys._getframe()):
        code = frame.f_code
        if code is CALL_MODULE:
            modules.append(frame.f_locals["self"])
        elif place is None:
            file = code.co_filename
            if not file.startswith(LIBRARIES):
                place = file, line
            elif code.co_name == "__torch_function__" and file.startswith(AUDIT):
                function = frame.f_locals["function"]
                outermost = OutermostFunction(function, function_name(function))
            elif file.startswith(PUBLIC) and (name := _public_name(code)):
                outermost = OutermostFunction(None, name)
    return (
        Caller(*(place or ("?", 0)), _module_path(modules[-1], modules[0]) if modules else ""),
        outermost,
    )


def is_called_by(code: CodeType) -> bool:
    """Whether a function with that code makes the current call, directly or through others."""
    return any(frame.f_code is code for frame, _ in walk_stack(sys._getframe()))


def is_in_differentiated_graph() -> bool:
    """Whether AOTAutograd runs a graph that it differentiated beforehand: the graph runs in the
    forward of one node, so its operators record nothing."""
    return any(
        frame.f_code.co_name == "forward" and frame.f_code.co_filename.startswith(AOT_AUTOGRAD)
        for frame, _ in walk_stack(sys._getframe())
    )


def function_name(function: Any) -> str:
    """Returns a name as people write it: torch itself calls torch.linalg.det linalg_det."""
    name: str = getattr(function, "__name__", "")
    space, _, rest = name.partition("_")
    return f"{space}.{rest}" if space in ("linalg", "special", "fft") and rest else name


def _public_name(code: CodeType) -> str:
    """Returns the name of a function or method as people write it, or "" if it is private."""
    name: str = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
    hidden = "<" in name or any(part.startswith("_") for part in name.split("."))
    return "" if hidden else name.removeprefix("Tensor.")


def _module_path(root: nn.Module, module: nn.Module) -> str:
    names = _names_by_root.get(root)
    if names is None or id(module) not in names:
        names = {id(m): name for name, m in root.named_modules()}
        _names_by_root[root] = names
    name = names.get(id(module), "?")
    return f"{type(root).__name__}.{name}" if name else type(root).__name__


def packages_folder(file: str) -> str:
    """Returns the folder of installed packages that has the file, where users edit nothing, or
    ""."""
    folders = file.split(os.sep)[:-1]
    indices = [i for i, name in enumerate(folders) if name in ("site-packages", "dist-packages")]
    return os.sep.join(folders[: indices[-1] + 1]) if indices else ""


def shorten_path(file: str, start: str) -> str:
    """Returns a path relative to the folder `start`, or to the folder of installed packages."""
    roots = [root for root in (start, packages_folder(file)) if root]
    roots = [root for root in roots if file.startswith(root.rstrip(os.sep) + os.sep)]
    return os.path.relpath(file, max(roots, key=len)) if roots else file
