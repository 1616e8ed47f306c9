"""The contract, conventions.yaml, as the build put it beside this file; and the names in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("_table.json").read_text())

CONVENTIONS: tuple[str, ...] = tuple(TABLE["conventions"])
PSEUDO: tuple[str, ...] = tuple(c for c in CONVENTIONS if c in TABLE["pseudo_gradients"]["rows"][0])
EXACT: tuple[str, ...] = tuple(c for c in CONVENTIONS if c not in PSEUDO)
ALIASES: dict[str, str] = TABLE["aliases"]
