"""Runs a program as `python` does: a script, a directory, a zip file, or `-m module`."""

import argparse
import builtins
import io
import logging
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType

logger = logging.getLogger("clampgrad")

USAGE_ERROR = 2  # what argparse, click and others exit with
USAGE = "(script.py | directory | zip | -m module) [ARGS ...]"


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, "Program"]:
    """Our own options, and the program that follows them with its own arguments."""
    ours, program = _split(parser, arguments)
    misplaced = _misplaced(parser, ours, program)
    missing = [option for option, is_required in misplaced.items() if is_required]
    if missing and not {"-h", "--help"}.intersection(ours):
        parser.error(_sentence(parser, missing[0]))
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(
            f"there is no option {unknown[0]}; arguments of the program come after the program"
        )
    if not program:
        parser.error("nothing to run: script.py or -m module is missing")
    started = _Module(program[1:]) if program[0] == "-m" else _File(program)
    complaint = started.complaint()
    if complaint:
        parser.error(complaint)
    started.hints = [_sentence(parser, option) for option in misplaced]
    return options, started


def _split(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The program begins at the first word that is neither an option of ours nor its value."""
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


def _misplaced(
    parser: argparse.ArgumentParser, ours: Sequence[str], program: Sequence[str]
) -> dict[str, bool]:
    """Our options that were given only after the program, and whether they are required."""

    def of(words: Sequence[str]) -> set[str]:
        return {word.partition("=")[0] for word in words}

    return {
        option: action.required
        for action in parser._actions
        for option in action.option_strings
        if option in of(program) and not of(ours).intersection(action.option_strings)
    }


def _sentence(parser: argparse.ArgumentParser, option: str) -> str:
    return (
        f"{option} stands after the program, which gets it: write the options of {parser.prog} before "
        "the program"
    )


class Program:
    """What to run. `argv[0]` is as given until the program starts.

    `hints` are logged if the program refuses its arguments: one of them may have been meant for us.
    """

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.hints: list[str] = []

    def complaint(self) -> str | None:
        """Why the program cannot run, as far as this shows without running any of it."""
        raise NotImplementedError

    def prepare(self, main: ModuleType) -> CodeType:
        """Returns the code to run, and sets what the program finds in `sys` and `__main__`."""
        raise NotImplementedError

    def run(self) -> None:
        """Runs the program to its end. Like python, it turns an exception into a traceback and exit code 1.

        `__main__` stays the program's after its end: functions that run at exit, and other threads, need it.
        """
        main = ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __file__=None)
        if "__annotations__" in sys.modules["__main__"].__dict__:  # up to Python 3.13
            main.__dict__["__annotations__"] = {}
        try:
            code = self.prepare(main)
            sys.argv = self.argv
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
        except SystemExit as end:
            if end.code == USAGE_ERROR:
                for hint in self.hints:
                    logger.info(hint)
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            error.__traceback__ = _theirs(error.__traceback__)
            sys.excepthook(type(error), error, error.__traceback__)
            raise SystemExit(1) from None


class _File(Program):
    def complaint(self) -> str | None:
        path = self.argv[0]
        if not os.path.exists(path):
            return f"no such file: {path}"
        if self._spec() is None and os.path.isdir(path):
            return f"no __main__.py in {path}"
        if path.endswith(".ipynb"):
            return (
                f"{path} is a notebook, not a program: call clampgrad.set_pin or clampgrad.audit in it, or "
                "convert it first (jupyter nbconvert --to script)"
            )
        return None

    def _spec(self) -> ModuleSpec | None:
        """The spec of the `__main__` in a directory or a zip file."""
        path = os.path.abspath(self.argv[0])
        return PathFinder.find_spec("__main__", [path])

    def prepare(self, main: ModuleType) -> CodeType:
        path = os.path.abspath(self.argv[0])
        spec = self._spec()
        if spec:
            sys.path[: 0 if _is_safe_path() else 1] = [path]
            return _from_spec(spec, main)
        _first_on_path(os.path.dirname(os.path.realpath(path)))
        main.__dict__.update(
            __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
        )
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)  # if it is a .pyc
        if code is None:
            with io.open_code(path) as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        return code


class _Module(Program):
    def complaint(self) -> str | None:
        if not self.argv:
            return "-m needs the name of a module"
        _first_on_path(os.getcwd())
        # Finding a submodule would import its package: that is for later.
        package = self.argv[0].partition(".")[0]
        return None if find_spec(package) else f"no module named {self.argv[0]}"

    def prepare(self, main: ModuleType) -> CodeType:
        name = self.argv[0]
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name}", name=name)
        self.argv[0] = spec.origin or name
        return _from_spec(spec, main)


def _from_spec(spec: ModuleSpec, main: ModuleType) -> CodeType:
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
    if not _is_safe_path():
        sys.path[0] = folder


def _is_safe_path() -> bool:
    return getattr(sys.flags, "safe_path", False)  # since Python 3.11


def _theirs(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from where the program begins."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(
        (__file__, "<frozen importlib", pkgutil.__file__)
    ):
        traceback = traceback.tb_next
    return traceback
