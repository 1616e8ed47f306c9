"""Who makes a call: the file and line outside of torch, and the path of the module."""

import os
import sys
from pathlib import Path
from traceback import walk_stack
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from clampgrad._torch.private_names import check, expected

check("audit")
OURS = Path(__file__).parents[2]
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, OURS))
CALL_MODULE = expected("torch.nn:Module._call_impl").__code__

_paths: WeakKeyDictionary[nn.Module, dict[int, str]] = WeakKeyDictionary()


class Caller(NamedTuple):
    file: str
    line: int
    module: str  # its path from the module that was called, "" outside of modules


def caller() -> Caller:
    """Who makes the current call."""
    place, modules = None, []
    for frame, line in walk_stack(sys._getframe()):
        code = frame.f_code
        if code is CALL_MODULE:
            modules.append(frame.f_locals["self"])
        elif place is None and not code.co_filename.startswith(LIBRARIES):
            place = code.co_filename, line
    return Caller(*(place or ("?", 0)), _path(modules[-1], modules[0]) if modules else "")


def _path(root: nn.Module, module: nn.Module) -> str:
    names = _paths.get(root)
    if names is None or id(module) not in names:
        names = {id(m): name for name, m in root.named_modules()}
        _paths[root] = names
    name = names.get(id(module), "?")
    return f"{type(root).__name__}.{name}" if name else type(root).__name__


def packages(file: str) -> str:
    """The folder of installed packages that holds the file, or "".
    Users do not edit files there."""
    folders = file.split(os.sep)[:-1]
    at = [i for i, name in enumerate(folders) if name in ("site-packages", "dist-packages")]
    return os.sep.join(folders[: at[-1] + 1]) if at else ""


def short(file: str, start: str) -> str:
    """A path relative to the folder `start`, or to the folder where packages are installed."""
    roots = [root for root in (start, packages(file)) if root]
    roots = [root for root in roots if file.startswith(root.rstrip(os.sep) + os.sep)]
    return os.path.relpath(file, max(roots, key=len)) if roots else file
