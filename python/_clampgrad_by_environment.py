"""CLAMPGRAD_GRADIENT=inclusive python train.py: a pin for a program that never imports clampgrad.

`import torch` calls `pin` when it is done, as it calls every entry point of the group
torch.backends (torch 2.5 and later, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0), and
`import clampgrad` calls `by_environment`. It is not part of the package, whose import takes time
that a program without a pin saves.

If the package cannot be imported, that is one warning, and torch works. If the package refuses the
pin, the program ends, because it would run with other gradients.

`command` is the console script `clampgrad`. It is here because a variable that is wrong
ends the import of the package.
"""

import os
import sys

_done = False


class CannotPin(BaseException):
    """The pin that CLAMPGRAD_GRADIENT asks for is refused.

    It is no Exception, because torch answers those of an entry point with the advice to turn entry
    points off: the program would run, without its pin.
    """


def command() -> "int | str | None":
    """Runs `clampgrad COMMAND`, and returns the exit status."""
    with OneSentence():
        from clampgrad.cli import main
    return main()


class OneSentence:
    """A block of a command, in which what is wrong with the environment is one sentence, and exit
    code 2: an error that names one of our variables. `python -m clampgrad` is a command, too."""

    def __init__(self, always: bool = True) -> None:
        self.always = always

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: "BaseException | None", traceback: object) -> None:
        of_environment = isinstance(error, (CannotPin, ImportError, RuntimeError, ValueError))
        if of_environment and "CLAMPGRAD_" in str(error) and (self.always or is_module_run()):
            sys.stderr.write(f"clampgrad: error: {error}\n")
            raise SystemExit(2) from None


def is_module_run() -> bool:
    """Whether this is `python -m clampgrad`. Python calls it "-m" until
    it has imported the package."""
    import re

    words = sys.orig_argv[1:]
    for word, following in zip(words, [*words[1:], ""]):
        if option := re.fullmatch(r"-[a-zA-Z]*?m(\w*)", word):
            return sys.argv[:1] == ["-m"] and (option[1] or following) == "clampgrad"
    return False


def pin() -> None:
    """The entry point that `import torch` calls."""
    try:
        by_environment()
    except (ValueError, RuntimeError, Warning) as error:  # a Warning where these are errors
        raise CannotPin(str(error)) from None


def by_environment() -> None:
    """Pins the process to the convention that CLAMPGRAD_GRADIENT names, if it names one."""
    global _done
    name = os.environ.get("CLAMPGRAD_GRADIENT")
    if not name or _done:
        return
    package = sys.modules.get("clampgrad")
    if hasattr(package, "_pin_by_environment") and not hasattr(package, "pin"):
        return  # it is being imported, and has just imported torch: it will call again
    _done = True
    try:
        from clampgrad._pin.pin import set_pin_in_words
    except Exception as error:
        _no_effect(name, f"clampgrad cannot be imported: {error}")
        return

    try:
        set_pin_in_words(name)
    except ValueError as error:
        _done = False  # so that the next import raises too
        raise ValueError(f"CLAMPGRAD_GRADIENT={name!r}: {error}") from None
    except RuntimeError as error:
        _done = False
        raise RuntimeError(
            f"CLAMPGRAD_GRADIENT={name!r}: {error} (without the variable, this program runs with "
            "torch's own gradients)"
        ) from None
    except Exception as error:
        _no_effect(name, f"of an error in clampgrad: {error!r}")


def _no_effect(name: str, because: str) -> None:
    """Warns, or raises where CLAMPGRAD_REQUIRE_COMPILED is set: then
    nothing may run without its pin."""
    global _done
    import warnings

    message = f"CLAMPGRAD_GRADIENT={name} has no effect, because {because}"
    if os.environ.get("CLAMPGRAD_REQUIRE_COMPILED", "0") not in ("", "0"):
        _done = False  # so that the next import raises too
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=3)
