"""CLAMPGRAD_GRADIENT=inclusive python train.py: a pin for a program that never imports clampgrad.

`import torch` calls `pin` when it is done, as it calls every entry point of the group torch.backends
(torch 2.5 and later, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0), and `import clampgrad` does too. It stands
outside the package, whose import would cost every program its time, and imports nothing by itself.
"""

import os
import sys

_done = False


def pin() -> None:
    """Pins the process to the convention that CLAMPGRAD_GRADIENT names, if it names one."""
    global _done
    name = os.environ.get("CLAMPGRAD_GRADIENT")
    if not name or _done:
        return
    if "clampgrad" in sys.modules and not hasattr(sys.modules["clampgrad"], "pin"):
        return  # it is being imported, and has just imported torch: it will call again
    _done = True
    try:
        import clampgrad  # noqa: F401
    except Exception as error:  # torch must be usable whatever is wrong with this package
        if os.environ.get("CLAMPGRAD_REQUIRE_COMPILED", "0") not in ("", "0"):
            _done = False
            raise  # but not unpinned, where that is what was asked for
        import warnings

        warnings.warn(
            f"CLAMPGRAD_GRADIENT={name} has no effect, because clampgrad cannot be imported: {error}",
            stacklevel=1,
        )
        return
    from clampgrad._pin import set_pin_in_words

    try:
        set_pin_in_words(name)
    except (ValueError, RuntimeError) as error:
        _done = False  # nothing is: the next import says so again
        raise type(error)(f"CLAMPGRAD_GRADIENT={name!r}: {error}") from None
