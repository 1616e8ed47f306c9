"""What is imported only where it is used, because the operators do without it."""

from importlib import import_module
from typing import Any


def need(module: str) -> Any:
    """The module, or an ImportError that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{package} is missing: pip install {package}") from error
