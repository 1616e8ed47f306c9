"""torch.ao.quantization finds modules by their exact type and would skip ours: this makes it refuse them."""

from functools import partial, wraps
from typing import Any, NoReturn

from torch import nn

from clampgrad._torch.after_import import when_imported


def refused(module: nn.Module) -> NoReturn:
    raise NotImplementedError(
        f"torch.ao.quantization finds modules by their exact type and would skip {module!r}: call "
        "clampgrad.nn.undo on the model, prepare it, and call clampgrad.nn.convert on what was prepared"
    )


class Unprepared:
    """The attribute by which quantization in eager mode chooses modules: a module of ours takes None alone,
    and keeps what it had when it was converted."""

    def __get__(self, module: Any, _: type) -> Any:
        if module is None or "qconfig" not in vars(module):
            raise AttributeError("qconfig")
        return vars(module)["qconfig"]

    def __set__(self, module: nn.Module, config: Any) -> None:
        if config is not None and vars(module).get("qconfig") is not config:
            refused(module)
        vars(module)["qconfig"] = config

    def __delete__(self, module: nn.Module) -> None:
        del vars(module)["qconfig"]


def refuse_in_graphs(ours: type[nn.Module]) -> None:
    """Also refuses our modules in the passes over graphs, whose tracer would trace into them."""
    when_imported("torch.ao.quantization.fx.tracer", partial(_refuse_in_graphs, ours))


def _refuse_in_graphs(ours: type[nn.Module], module: Any) -> None:
    torchs = module.QuantizationTracer.is_leaf_module

    @wraps(torchs)
    def is_leaf_module(self: Any, m: nn.Module, name: str) -> bool:
        leaf: bool = torchs(self, m, name)  # where the caller excludes it
        if not leaf and isinstance(m, ours):
            refused(m)
        return leaf

    module.QuantizationTracer.is_leaf_module = is_leaf_module
