"""What the caches of compiled graphs on disk must know: where the gradients in a graph come from.

AOTAutograd looks a graph up before it differentiates it. Its key has the names of our operators, and
not what they do, and under a pin not even that: so an upgrade, or the other implementation, would be
served the gradients of before. The contract is in the key as a hash, for builds of one version that
differ in it. A graph can have our operators inside of an operator of somebody else, so every key
that is made where this package is imported has them.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from clampgrad import _implementation
from clampgrad._build import VERSION
from clampgrad._contract.table import TABLE
from clampgrad._pin.state import current
from clampgrad._torch.changes import Change, original, replacing
from clampgrad._torch.private_names import expected


@cache
def gradients() -> tuple[str, str, str]:
    table = json.dumps(TABLE, sort_keys=True).encode()
    return VERSION, _implementation.name, hashlib.sha256(table).hexdigest()


def key_caches(_: object) -> list[Change]:
    details = expected("torch._inductor.codecache:FxGraphHashDetails")
    torchs = original(details.__init__)

    @replacing(torchs)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        torchs(self, *args, **keywords)
        self.clampgrad = (*gradients(), current())

    return [Change(details, "__init__", __init__)]
