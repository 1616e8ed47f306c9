"""What the caches of compiled graphs on disk must know: where the gradients in a graph come from.

AOTAutograd looks for a graph before it differentiates it. The key has the names of our operators, but not
what their gradients are, and nothing of a pin. Without more, an upgrade, the other implementation or another
pin would be given gradients of before. So the version, the implementation, hashes of the contract and of
what the library is built from (which builds of one version may differ in) and the pin are in the key. Every
key has them, because a graph may call our operators inside somebody else's.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from clampgrad import _implementation
from clampgrad._contract.table import TABLE
from clampgrad._implementation.build import SOURCES, VERSION
from clampgrad._pin.state import current
from clampgrad._torch.changes import Change, original, replacing
from clampgrad._torch.private_names import expected


@cache
def gradients() -> tuple[str, ...]:
    table = json.dumps(TABLE, sort_keys=True).encode()
    return VERSION, SOURCES, _implementation.name, hashlib.sha256(table).hexdigest()


def key_caches(_: object) -> list[Change]:
    details = expected("torch._inductor.codecache:FxGraphHashDetails")
    torchs = original(details.__init__)

    @replacing(torchs)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        torchs(self, *args, **keywords)
        self.clampgrad = (*gradients(), current())

    return [Change(details, "__init__", __init__)]
