"""torch.compile: compiled code is guarded by the pin that it was compiled under, wherever it is loaded.

Every compiled frame is guarded by the global state of torch; the pin is made part of that. Guards are saved
with code that was compiled ahead of time, as the function that builds them and its arguments: that is
guard_global_state with the pin of the compilation. Code that was compiled where nothing was ever pinned has
torch's own function, and is of no pin.
"""

from __future__ import annotations

import functools
from typing import Any

from clampgrad._pin.state import current
from clampgrad._torch.changes import Change, expect, original, replacing
from clampgrad._torch.compiler import add_guard, guard_of_every_frame, is_guarded, was_saved
from clampgrad._torch.private_names import expected


def guard_global_state(builder: Any, guard: Any, *, pin: str | None) -> None:
    """Saved with code by its name: a release that moves it refuses what an earlier one has saved."""
    add_guard(builder, guard, lambda _: current() == pin, f"clampgrad.pin.current() == {pin!r}")


guard_global_state.__name__ = "GLOBAL_STATE"  # by which torch knows the guard's type


def guard_compiled_code(_: object) -> list[Change]:
    builder = expected("torch._dynamo.guards:GuardBuilder")
    name, torchs = guard_of_every_frame(builder)
    expect(torchs, "self", "guard")

    @replacing(torchs)
    def wrapped(self: Any, guard: Any) -> None:
        saved = was_saved(self)
        if not saved:
            guard.create_fn = functools.partial(guard_global_state, pin=current())
        guard_global_state(self, guard, pin=None if saved else current())

    return [Change(builder, name, wrapped)]


def refuse_code_without_guard(aot_compile: Any) -> list[Change]:
    """Compiled ahead of time, or loaded, before the first pin of this process: it is of no pin."""
    torchs = original(expected("torch._dynamo.aot_compile:AOTCompiledFunction.guard_check"))

    @replacing(torchs)
    def guard_check(self: Any, *args: Any, **keywords: Any) -> bool:
        if current() is not None and not is_guarded(self):
            raise RuntimeError(
                "clampgrad.pin: this function was compiled ahead of time, or loaded, before the "
                "first pin of the process; compile or load it after that"
            )
        return torchs(self, *args, **keywords)

    return [Change(aot_compile.AOTCompiledFunction, "guard_check", guard_check)]
