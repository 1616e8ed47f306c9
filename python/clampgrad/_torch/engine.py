"""The engine of autograd, as Python calls it."""

from collections.abc import Callable
from typing import Any

import torch

from clampgrad._torch.after_import import when_imported
from clampgrad._torch.changes import expect_attribute
from clampgrad._torch.private_names import expected


def call_backward_by(call: Callable[..., Any]) -> None:
    """From now on `call` is given the engine's function and its arguments, for every
    backward that Python calls."""
    torchs = type(expected("torch.autograd:Variable._execution_engine"))
    expect_attribute(torchs, "run_backward")

    class Engine(torchs):  # type: ignore[misc, valid-type]
        def run_backward(self, *args: Any, **keywords: Any) -> Any:
            return call(super().run_backward, *args, **keywords)

    def leave_uncompiled(_: object) -> None:
        Engine.run_backward = torch.compiler.disable(Engine.run_backward)  # type: ignore[method-assign]

    when_imported("torch._dynamo", leave_uncompiled)
    torch.autograd.Variable._execution_engine = Engine()
