"""Something to be done to a module that torch imports only when it needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """Calls a function on a module when that is imported.

    To be asked for a spec (`importlib.util.find_spec`) is no import yet: it stays until the module runs.
    """

    def __init__(self, name: str, action: Callable[[ModuleType], object]) -> None:
        self.name, self.action = name, action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        # Those before it were asked already; one of the same module may follow.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            if spec := find and find(fullname, path, target):
                if spec.loader:
                    spec.loader = Then(spec.loader, self)
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        if self in sys.meta_path and sys.modules.get(self.name) is module:
            sys.meta_path.remove(self)
            self.action(module)


class Then(Loader):
    """A module's own loader, and what follows."""

    def __init__(self, loader: Loader, after: AfterImport) -> None:
        self.loader, self.after = loader, after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module and its spec keep the loader that they would have had.
        module.__loader__ = self.loader
        if module.__spec__:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.after.imported(module)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # of a copy that has none yet
            raise AttributeError(name)
        return getattr(self.loader, name)


def when_imported(name: str, action: Callable[[ModuleType], object]) -> bool:
    """Calls `action` on the module, now or later; whether it was now."""
    if name in sys.modules:
        action(sys.modules[name])
        return True
    sys.meta_path.insert(0, AfterImport(name, action))
    return False
