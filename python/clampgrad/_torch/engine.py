"""The engine of autograd, as Python calls it."""

from collections.abc import Callable
from typing import Any

import torch

from clampgrad._torch.after_import import when_imported
from clampgrad._torch.private_names import require_name
from clampgrad._torch.replacements import expect_attribute


def wrap_engine_backward(call: Callable[..., Any]) -> None:
    """Makes every backward that Python calls go through `call`, which gets the engine's function
    and its arguments."""
    torchs = type(require_name("torch.autograd:Variable._execution_engine"))
    expect_attribute(torchs, "run_backward")

    class Engine(torchs):  # type: ignore[misc, valid-type]
        def run_backward(self, *args: Any, **keywords: Any) -> Any:
            return call(super().run_backward, *args, **keywords)

    def disable_compilation(_: object) -> None:
        Engine.run_backward = torch.compiler.disable(Engine.run_backward)  # type: ignore[method-assign]

    when_imported("torch._dynamo", disable_compilation)
    torch.autograd.Variable._execution_engine = Engine()
