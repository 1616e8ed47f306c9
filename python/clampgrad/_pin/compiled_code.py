"""torch.compile: compiled code is guarded by the pin that it was compiled under, and
caches on disk tell pins apart.

torch guards every compiled frame by its global state, and we add the pin to that guard. Code that
was compiled ahead of time saves each guard as the function that builds it, with its arguments:
guard_global_state and the pin of the compilation. Code that was compiled before the first pin
saves torch's own function instead.

AOTAutograd looks a graph up on disk before it differentiates it, by a key that holds only the
names of our operators. Without our addition to the key, another version, implementation or
pin would get stale gradients.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from clampgrad import _implementation
from clampgrad._contract.table import TABLE
from clampgrad._implementation.build import SOURCES, VERSION
from clampgrad._pin.state import current_pin_name
from clampgrad._torch.compiler import add_guard, guard_of_every_frame, is_guarded, is_loaded_code
from clampgrad._torch.private_names import require_name
from clampgrad._torch.replacements import Replacement, expect, mark_replacement, original


def guard_global_state(builder: Any, guard: Any, *, pin: str | None) -> None:
    """Guards a frame by the pin. Saved code names this function: moving it invalidates the code."""
    add_guard(
        builder, guard, lambda _: current_pin_name() == pin, f"clampgrad.pin.current() == {pin!r}"
    )


guard_global_state.__name__ = "GLOBAL_STATE"  # by which torch knows the guard's type


def guard_compiled_code(_: object) -> list[Replacement]:
    builder = require_name("torch._dynamo.guards:GuardBuilder")
    name, torchs = guard_of_every_frame(builder)
    expect(torchs, "self", "guard")

    @mark_replacement(torchs)
    def wrapped(self: Any, guard: Any) -> None:
        saved = is_loaded_code(self)
        if not saved:
            guard.create_fn = functools.partial(guard_global_state, pin=current_pin_name())
        guard_global_state(self, guard, pin=None if saved else current_pin_name())

    return [Replacement(builder, name, wrapped)]


def refuse_code_without_guard(aot_compile: Any) -> list[Replacement]:
    """Refuses, under a pin, code that was compiled ahead of time, or loaded, before the first pin
    of this process: it has no guard."""
    torchs = original(require_name("torch._dynamo.aot_compile:AOTCompiledFunction.guard_check"))

    @mark_replacement(torchs)
    def guard_check(self: Any, *args: Any, **keywords: Any) -> bool:
        if current_pin_name() is not None and not is_guarded(self):
            raise RuntimeError(
                "clampgrad.pin: this function was compiled ahead of time, or loaded, before the "
                "first pin of the process; compile or load it after that"
            )
        return torchs(self, *args, **keywords)

    return [Replacement(aot_compile.AOTCompiledFunction, "guard_check", guard_check)]


@functools.cache
def gradient_fingerprint() -> tuple[str, ...]:
    """Returns what the gradients of our operators depend on. Builds of one version may differ in
    their sources."""
    table = json.dumps(TABLE, sort_keys=True).encode()
    return VERSION, SOURCES, _implementation.name, hashlib.sha256(table).hexdigest()


def add_pin_to_cache_keys(_: object) -> list[Replacement]:
    """Changes the key of every graph: a graph may call our operators inside other people's."""
    details = require_name("torch._inductor.codecache:FxGraphHashDetails")
    torchs = original(details.__init__)

    @mark_replacement(torchs)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        torchs(self, *args, **keywords)
        self.clampgrad = (*gradient_fingerprint(), current_pin_name())

    return [Replacement(details, "__init__", __init__)]
