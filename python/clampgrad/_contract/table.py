"""The contract, conventions.yaml, as the build put it beside this file; and the names in it."""

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("table.json").read_text())

CONVENTIONS: tuple[str, ...] = tuple(TABLE["conventions"])
PSEUDO: tuple[str, ...] = tuple(c for c in CONVENTIONS if c in TABLE["pseudo_gradients"]["rows"][0])
EXACT: tuple[str, ...] = tuple(c for c in CONVENTIONS if c not in PSEUDO)
# Under these, a clamp by a number and a Tensor takes the number as a constant Tensor.
ONE_STEP: tuple[str, ...] = (*TABLE["one_step"], *PSEUDO)
# Between numbers, x has all of the gradient or nothing under these: all of it where x alone is the
# result, as torch's relu has it (STRICT), or where x is one of the results (INCLUSIVE).
_OF_NUMBERS = [
    (row["active"], row["numbers"])
    for operator in TABLE["operators"].values()
    for row in operator["rows"]
    if "numbers" in row
]
STRICT: tuple[str, ...] = tuple(
    c for c in EXACT if all(factor[c] == (active == ["x"]) for active, factor in _OF_NUMBERS)
)
INCLUSIVE: tuple[str, ...] = tuple(
    c for c in EXACT if all(factor[c] == ("x" in active) for active, factor in _OF_NUMBERS)
)
ALIASES: dict[str, str] = TABLE["aliases"]
CANONICAL: dict[str, str] = {name: name for name in CONVENTIONS} | ALIASES


def factors(
    row: dict[str, Any], convention: str, numbers: bool, differentiated: Set[str]
) -> list[Any]:
    """Returns the factor of g for each argument, at the position of a row, under an exact
    convention. The rule about constants is explained in conventions.yaml, beside
    `depends_on_differentiated`."""
    nothing = [0] * len(row["points"][0])
    if numbers:
        return [row["numbers"][convention], *nothing[1:]]
    shared = convention in TABLE["depends_on_differentiated"] and len(row["active"]) > 1
    return (
        nothing if shared and not differentiated >= {*row["active"]} else row["tensors"][convention]
    )


def _beside_constants(convention: str) -> str | None:
    def alike(other: str) -> bool:
        return all(
            factors(row, convention, True, {"x"})[0] == factors(row, other, False, {"x"})[0]
            for row in TABLE["operators"]["clamp"]["rows"]
        )

    return next(filter(alike, EXACT), None) if convention in EXACT else convention


# The convention that gives x the same gradient beside constant Tensor
# bounds as each gives with numbers.
BESIDE_CONSTANTS: dict[str, str | None] = {name: _beside_constants(name) for name in CONVENTIONS}


def unknown_gradient_message(name: str, *also: str) -> str:
    """Returns the error for an unknown name: the known names, and the one that was perhaps meant.

    The compiled functions call this, too (csrc/python/functions.cpp); the operators say less.
    `also` lists what else the caller accepts.
    """
    from difflib import get_close_matches  # here: few programs misspell a name

    known = f"{', '.join(CONVENTIONS)}, or an alias: {', '.join([*ALIASES])}"
    known += "".join(f", or {word}" for word in also)
    words = [*CANONICAL, *also]
    close = get_close_matches(name.lower(), words, cutoff=0.75)
    meant = [repr(word) for word in words if word in close]
    question = f"; did you mean {' or '.join(meant)}?" if meant else ""
    return f"unknown gradient '{name}'; expected one of {known}{question}"
