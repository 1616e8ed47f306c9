"""Runs a program as `python` does: a script or `-m module`."""

import argparse
import builtins
import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType

USAGE = "(script.py | -m module) [ARGS ...]"


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, "Program"]:
    """Returns our own options, and the program that follows them with its own arguments."""
    ours, words = _split(parser, arguments)
    for action in parser._actions:
        if action.required and not _has(ours, action) and _has(words, action):
            option = action.option_strings[0]
            parser.error(
                f"{option} comes before the program: {parser.prog} {option} {action.metavar} "
                f"{' '.join(words[: 1 + (words[0] == '-m')])}; what comes after it are its own arguments"
            )
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(
            f"there is no option {unknown[0]}; arguments of the program come after the program"
        )
    if not words:
        parser.error("nothing to run: script.py or -m module is missing")
    program = Program(words)
    if complaint := program.complaint():
        parser.error(complaint)
    return options, program


def _split(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Splits our options from the program, which begins at the first word that is neither an option
    of ours nor its value."""
    words = list(arguments)
    i = 0
    while i < len(words):
        word = words[i]
        if word == "--":
            return words[:i], words[i + 1 :]
        if word.startswith("-m"):
            attached = [word[2:]] if word != "-m" else []
            return words[:i], ["-m", *attached, *words[i + 1 :]]
        if not word.startswith("-"):
            return words[:i], words[i:]
        option = parser._option_string_actions.get(word)
        takes_value = option is not None and option.nargs is None
        i += 2 if takes_value else 1
    return words, []


def _has(words: Sequence[str], action: argparse.Action) -> bool:
    return any(word.partition("=")[0] in action.option_strings for word in words)


class Program:
    """What to run: a module after -m, or a file, and its arguments. `argv[0]`
    is as given until it starts."""

    def __init__(self, words: list[str]) -> None:
        self.is_module = words[0] == "-m"
        self.argv = words[self.is_module :]

    def complaint(self) -> str | None:
        """Returns why the program cannot run, as far as this shows without running any of it."""
        if not self.argv:
            return "-m needs the name of a module"
        given = self.argv[0]
        if self.is_module:
            _first_on_path(os.getcwd())
            # Finding a submodule would import its package: that is for later.
            return None if find_spec(given.partition(".")[0]) else f"no module named {given}"
        if not os.path.isfile(given):
            return f"no such file: {given}"
        if given.endswith(".ipynb"):
            return (
                f"{given} is a notebook, not a program: call clampgrad.set_pin or clampgrad.audit "
                "in it, or convert it first (jupyter nbconvert --to script)"
            )
        return None

    def run(self) -> None:
        """Runs the program to its end. Like python, it turns an exception
        into a traceback and exit code 1.

        `__main__` stays the program's after its end: functions that run at
        exit, and other threads, need it.
        """
        main = ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __file__=None)
        if "__annotations__" in sys.modules["__main__"].__dict__:  # up to Python 3.13
            main.__dict__["__annotations__"] = {}
        try:
            code = self._load_module(main) if self.is_module else self._load_file(main)
            sys.argv = self.argv
            sys.modules["__main__"] = main
            # multiprocessing has given this name to our own __main__. It is where what a spawned
            # worker returns is looked up.
            if "__mp_main__" in sys.modules:
                sys.modules["__mp_main__"] = main
            exec(code, main.__dict__)
        except SystemExit:
            raise
        except KeyboardInterrupt:
            # Python shows it when we are gone, and ends by the signal, so that a shell stops, too.
            sys.excepthook = partial(_show_program_error, sys.excepthook)
            raise
        except BaseException as error:
            _show_program_error(sys.excepthook, type(error), error, error.__traceback__)
            raise SystemExit(1) from None

    def _load_file(self, main: ModuleType) -> CodeType:
        """Returns the code of a file, and sets what it finds in `sys` and `__main__`."""
        path = os.path.abspath(self.argv[0])
        _first_on_path(os.path.dirname(os.path.realpath(path)))
        main.__dict__.update(
            __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
        )
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    def _load_module(self, main: ModuleType) -> CodeType:
        """Does the same for a module."""
        name = self.argv[0]
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name}", name=name)
        self.argv[0] = spec.origin or name
        main.__dict__.update(
            __file__=spec.origin,
            __cached__=spec.cached,
            __loader__=spec.loader,
            __package__=spec.parent,
            __spec__=spec,
        )
        code = spec.loader.get_code(spec.name) if spec.loader else None  # type: ignore[attr-defined]
        if code is None:
            raise ImportError(f"No code object available for {spec.name}", name=spec.name)
        return code


def _first_on_path(folder: str) -> None:
    """Replaces the folder that python put first on the path for us; `python -P` puts none there."""
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path[0] = folder


def _show_program_error(
    hook: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    """Shows an error of the program as if python ran it."""
    error.__traceback__ = _program_traceback(traceback)
    hook(kind, error, error.__traceback__)


def _program_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Returns the traceback from where the program begins."""
    while traceback is not None and traceback.tb_frame.f_code is not Program.run.__code__:
        traceback = traceback.tb_next
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(
        (__file__, "<frozen importlib")
    ):
        traceback = traceback.tb_next
    return traceback
