"""One forward and a named, pinned gradient for clamp, on every release of PyTorch.

`clamp`, `maximum` and their relatives are those of torch, with the gradient as a keyword;
`help(clampgrad.clamp)` lists what it accepts. `nn` has modules, and `nn.convert` for a model
that exists. `pin` and `set_pin` give torch's own functions a named gradient, in code that you do
not edit. `audit` tells whether the gradient at the bounds matters to a program, and `survey`
what the installed torch does there.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from _clampgrad_by_environment import OneSentence as _OneSentence
from _clampgrad_by_environment import by_environment as _pin_by_environment

with _OneSentence(always=False):
    from clampgrad import _implementation  # first: it says what is wrong before anything breaks
from clampgrad._contract.table import CONVENTIONS, EXACT, PSEUDO
from clampgrad._implementation.build import VERSION
from clampgrad._pin.pin import pin, set_pin
from clampgrad.activations import hardtanh, relu, relu6
from clampgrad.functional import (
    Gradient,
    clamp,
    clamp_,
    clamp_max,
    clamp_max_,
    clamp_min,
    clamp_min_,
    clamp_with_grad,
    clip,
    clip_,
    fmax,
    fmin,
    maximum,
    minimum,
)

__version__ = VERSION
implementation = _implementation.name

# Written out: type checkers read it. It is also what `dir` shows.
__all__ = [
    "CONVENTIONS",
    "Diagnostic",
    "EXACT",
    "Finding",
    "Gradient",
    "PSEUDO",
    "Report",
    "Row",
    "Survey",
    "Suspect",
    "audit",
    "clamp",
    "clamp_",
    "clamp_max",
    "clamp_max_",
    "clamp_min",
    "clamp_min_",
    "clamp_with_grad",
    "clip",
    "clip_",
    "fmax",
    "fmin",
    "hardtanh",
    "implementation",
    "maximum",
    "minimum",
    "nn",
    "pin",
    "plot",
    "relu",
    "relu6",
    "set_pin",
    "survey",
]

if TYPE_CHECKING:
    from clampgrad import nn
    from clampgrad._tools.audit import Diagnostic, Finding, Report, Suspect, audit
    from clampgrad._tools.plot import plot
    from clampgrad._tools.survey import Row, Survey, survey

# Tools are imported when they are asked for, so that importing the operators stays quick.
_LAZY = dict.fromkeys(
    ("Diagnostic", "Finding", "Report", "Suspect", "audit"), "clampgrad._tools.audit"
)
_LAZY |= dict.fromkeys(("Row", "Survey", "survey"), "clampgrad._tools.survey")
_LAZY |= {"plot": "clampgrad._tools.plot"}


if not TYPE_CHECKING:  # which would find every name here

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        if name == "nn":
            return import_module("clampgrad.nn")
        # With the module, Python adds which name was perhaps meant.
        message = f"module 'clampgrad' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


with _OneSentence(always=False):
    _pin_by_environment()
