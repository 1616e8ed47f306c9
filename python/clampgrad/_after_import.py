"""Something to be done to a module that torch imports only when it needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """Calls a function on a module when that is imported."""

    def __init__(self, name: str, action: Callable[[ModuleType], object]) -> None:
        self.name, self.action = name, action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self.action(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, action: Callable[[ModuleType], object]) -> bool:
    """Calls `action` on the module, now or later; whether it was now."""
    if name in sys.modules:
        action(sys.modules[name])
        return True
    sys.meta_path.insert(0, AfterImport(name, action))
    return False
