"""The contract, conventions.yaml, as the build put it into the package; and the names in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads(Path(__file__).parents[1].joinpath("_table.json").read_text())

CONVENTIONS: tuple[str, ...] = tuple(TABLE["conventions"])
PSEUDO: tuple[str, ...] = tuple(c for c in CONVENTIONS if c in TABLE["pseudo_gradients"]["rows"][0])
EXACT: tuple[str, ...] = tuple(c for c in CONVENTIONS if c not in PSEUDO)
# Those whose gradient is 0 at a bound that is a number, as that of torch's relu.
_TIES = [row["numbers"] for row in TABLE["operators"]["clamp"]["rows"] if len(row["active"]) > 1]
STRICT: tuple[str, ...] = tuple(c for c in EXACT if all(tie[c] == 0 for tie in _TIES))
ALIASES: dict[str, str] = TABLE["aliases"]
CANONICAL: dict[str, str] = {name: name for name in CONVENTIONS} | ALIASES


def nearest(name: str) -> str:
    """For the end of an error: what a misspelt name was meant to be, if any name is like it."""
    from difflib import get_close_matches

    found = get_close_matches(name.lower(), CANONICAL, 1)
    return f"; did you mean {found[0]!r}?" if found else ""
