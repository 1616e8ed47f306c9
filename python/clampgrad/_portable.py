"""The operators in plain PyTorch, without a rule of their own: they execute the contract table."""

from typing import Any


def __getattr__(name: str) -> Any:
    def function(*args: Any) -> Any:
        raise NotImplementedError(f"the portable implementation has no {name} yet")

    if name.startswith("_"):
        raise AttributeError(name)
    return function


def pin_code(gradient: str | None, maximize: bool, /) -> int:
    return 0


def pin_current() -> int:
    return 0
