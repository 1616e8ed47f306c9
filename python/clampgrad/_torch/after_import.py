"""Actions on a module that torch imports only when it needs the module.

No program may lose an import because this package is wrong about torch: an action that fails is one
warning, and the next import of the module tries it again. An action that must not be left out
raises Refused, which ends the import.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[ModuleType], object]


class Refused(ImportError):
    """An action raises this to end the import."""


class AfterImport(MetaPathFinder):
    """Runs actions on a module whenever that is imported, also when it is reloaded.

    There is one finder, and it is never removed: another thread that walks sys.meta_path meanwhile
    would skip the finder after it.
    """

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in self.actions or self not in sys.meta_path:
            return None
        # Python has asked the finders before this one.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            if spec := find and find(fullname, path, target):
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = HookedLoader(spec.loader, self)
                return spec
        return None

    def run_actions(self, module: ModuleType) -> None:
        for action in tuple(self.actions[module.__name__]):
            act(action, module)


class HookedLoader(Loader):
    """Runs the loader of a module, then the actions."""

    def __init__(self, loader: Any, after: AfterImport) -> None:
        self.loader, self.after = loader, after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module and its spec show their own loader, as if this one were not there.
        module.__loader__ = self.loader
        if module.__spec__:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if sys.modules.get(module.__name__) is module:  # not if somebody executes a copy of it
            self.after.run_actions(module)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # copy.copy asks before it has set any attribute
            raise AttributeError(name)
        return getattr(self.loader, name)


def act(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Refused:
        raise
    except Exception as error:
        warnings.warn(
            f"clampgrad could not adapt {module.__name__}: {error}", RuntimeWarning, stacklevel=2
        )


def on_import(name: str, action: Action) -> None:
    """Calls `action` on the module whenever it is imported from now on."""
    actions = _finder.actions.setdefault(name, [])
    if action not in actions:
        actions.append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


@contextmanager
def registered_action(names: Iterable[str], action: Action) -> Iterator[None]:
    """Calls `action` on each of the modules when it is imported, from now
    on, unless the block fails."""
    new = [name for name in names if action not in _finder.actions.get(name, ())]
    try:
        for name in new:
            on_import(name, action)
        yield
    except BaseException:
        for name in new:
            if action in _finder.actions.get(name, ()):
                _finder.actions[name].remove(action)
        raise


def get_if_imported(name: str) -> ModuleType | None:
    """Returns the module if it is imported. Waits for another thread that is importing it."""
    return import_module(name) if sys.modules.get(name) else None


def when_imported(name: str, action: Action) -> None:
    """Calls `action` on the module: now, if it is there, and whenever it is imported."""
    on_import(name, action)  # first, lest another thread imports it in between
    if module := get_if_imported(name):
        act(action, module)


_finder = AfterImport()
