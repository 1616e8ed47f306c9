"""Kernels in Python at the autograd keys of torch's dispatcher, and the
node that one of them makes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._functorch.vmap import unwrap_batched
from torch.autograd.function import _SingleLevelFunction

from clampgrad._torch.surroundings import forward_mode

Kernel: TypeAlias = Callable[..., Any]

NO_BACKENDS = "Autograd", "AutogradOther", "AutogradFunctionality"
FROM_AUTOGRAD_ON = torch._C._dispatch_keyset_full_after(DispatchKey.AutogradOther)
OUTER = (
    DispatchKeySet(DispatchKey.FuncTorchDynamicLayerFrontMode)
    .add(DispatchKey.FuncTorchDynamicLayerBackMode)
    .add(DispatchKey.Python)
    .add(DispatchKey.PythonTLSSnapshot)
)
AUTOGRAD = (
    DispatchKeySet(DispatchKey.AutogradFunctionality)
    .add(DispatchKey.AutogradOther)
    .add(DispatchKey.AutogradNestedTensor)
    .add(DispatchKey.ADInplaceOrView)
)
TORCHS_OWN = DispatchKeySet(DispatchKey.AutogradOther)
BELOW_AUTOGRAD = torch._C._dispatch_keyset_full_after(DispatchKey.ADInplaceOrView)


def below_autograd(keys: DispatchKeySet) -> DispatchKeySet:
    """Returns the keys below autograd, and below the key that counts the versions of a tensor: an
    autograd function that writes a tensor counts them itself."""
    return keys & BELOW_AUTOGRAD


def exclude_outer_levels() -> AbstractContextManager[Any]:
    """Returns a context in which an operator reaches no other level of torch.func, and no dispatch
    mode. A kernel cannot turn off the modes alone: an outer level would still look for them."""
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(OUTER)
    return guard


class next_level:
    """A context in which an autograd function of one level calls operators as torch's own kernels
    do: below autograd at this level, and recorded at the next ones."""

    def __init__(self, records: bool) -> None:
        self.records = records

    def __enter__(self) -> None:
        self.below = torch._C._ExcludeDispatchKeyGuard(AUTOGRAD)
        self.below.__enter__()
        self.modes = torch.set_grad_enabled(self.records), forward_mode(True)
        self.modes[1].__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in (*self.modes, self.below):
            mode.__exit__(*error)


def torch_kernel_keys(keys: DispatchKeySet) -> DispatchKeySet:
    """Returns the keys whose kernel is torch's own: we never override AutogradOther, a key that no
    backend that clamps has."""
    raw = keys.raw_repr()
    torch_keys = _torch_kernel_keys.get(raw)
    if torch_keys is None:
        torch_keys = _torch_kernel_keys[raw] = (keys & FROM_AUTOGRAD_ON) | TORCHS_OWN
    return torch_keys


_torch_kernel_keys: dict[
    int, DispatchKeySet
] = {}  # a call meets few sets, and computing takes 0.6 us


def operator_named(name: str) -> Any:
    """Returns the operator of aten with a name such as "clamp.Tensor"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def register_at_autograd_keys(kernels: dict[str, Kernel], conflict: str) -> torch.library.Library:
    """Registers kernels in place of torch's own, at the autograd keys of every backend, until the
    result is deleted. `conflict` is the error for an operator that has a kernel at such a key."""
    names = [name for name in DispatchKey.__members__ if name.startswith("Autograd")]
    keys = [
        n for n in names if n not in NO_BACKENDS and torch._C._parse_dispatch_key(n) is not None
    ]
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in kernels.items():
        for key in keys:
            # We can neither replace such a kernel, which calls without a pin need, nor keep it,
            # because it ignores pins.
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                raise RuntimeError(conflict.format(f"aten::{name}", key))
            library.impl(name, kernel, key, with_keyset=True)
    return library


def batch_first(arg: Any, dim: int | None, missing: int) -> Any:
    """Moves the batch to the first dimension, and adds dimensions that other arguments have. Makes
    no view unless it must: under vmap, torch cannot differentiate a write to a view."""
    if dim is None:
        return arg
    arg = arg.movedim(dim, 0) if dim else arg
    return arg.unflatten(0, (-1, *[1] * missing)) if missing else arg


def promote_like_sample(args: Sequence[Any], sizes: list[int]) -> list[Any]:
    """Casts arguments so that they promote as in one sample, where a bound may have no dimensions
    and count less. A batched bound has a dimension here. `sizes` are the dimensions of a sample."""
    of = args[0].dtype
    dtypes = [a.dtype for a, n in zip(args, sizes) if isinstance(a, torch.Tensor) and n == sizes[0]]

    def counted(a: Any, n: int) -> Any:
        fits = n or not isinstance(a, torch.Tensor) or a.dtype == of or not of.is_floating_point
        return a if fits else a.to(reduce(torch.promote_types, dtypes)).reshape(-1)

    return list(map(counted, args, sizes))


def may_share_memory(x: torch.Tensor) -> bool:
    """Whether elements of the tensor may share memory, by the strides."""
    extent = 0
    for step, n in sorted(zip(x.stride(), x.shape), key=lambda dim: dim[0]):
        if step <= extent and n > 1:
            return True
        extent += step * (n - 1)
    return False


def make_inplace_batch_rule(operator: Any, is_pinned: Callable[[], bool]) -> Kernel:
    """Returns a batching rule for an elementwise in-place operator for which torch loops over the
    samples. Each sample would be a view, and once the first is written, x may be differentiated for
    the others. So under a pin, one call writes all samples, unless they share memory or are too
    small for the result, which is torch's error."""

    def rule(x: torch.Tensor, *others: Any) -> torch.Tensor:
        level = torch._C._functorch.current_level()
        args, dims = unwrap_batched((x, *others), level)
        if dims[0] is None:
            if any(d is not None for d in dims):
                raise RuntimeError(
                    f"vmap: {operator.name()} is not possible where a bound is batched and what is "
                    "written is not"
                )
            with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.FuncTorchBatched)):
                return operator(x, *others)
        sizes = [
            a.dim() - (d is not None) if isinstance(a, torch.Tensor) else 0
            for a, d in zip(args, dims)
        ]
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.FuncTorchBatched)):
            if is_pinned() and max(sizes) == sizes[0] and not may_share_memory(args[0]):
                args = promote_like_sample(args, sizes)
                operator(*(batch_first(a, d, sizes[0] - n) for a, d, n in zip(args, dims, sizes)))
                return x
            for i in range(args[0].size(dims[0])):
                operator(*(a if d is None else a.select(d, i) for a, d in zip(args, dims)))
        return x

    return rule


class OneLevel(_SingleLevelFunction):
    """An autograd function for the level of torch.func that runs now, or for eager mode."""

    _compiled_autograd_key = staticmethod(torch.autograd.Function._compiled_autograd_key)

    @classmethod
    def call(cls, *args: Any) -> Any:
        allowed = torch._C._functorch.get_single_level_autograd_function_allowed()
        torch._C._functorch.set_single_level_autograd_function_allowed(True)
        try:
            return cls.apply(*args)
        finally:
            torch._C._functorch.set_single_level_autograd_function_allowed(allowed)
