"""What each of some modules keeps for backward that nothing else keeps: measured in one forward of a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from clampgrad._torch.compiler import uncompiled
from clampgrad._torch.modules import torchs_forward
from clampgrad._torch.surroundings import tensors_in


class Kept(NamedTuple):
    """Bytes that a module keeps in all its calls."""

    torchs: int  # of torch's, those that nothing else keeps
    ours: int  # after a conversion


class Saved:
    """What the graph keeps in place of a tensor; once that part of the graph is gone, so is this.

    It has no history: that would be a cycle where a node keeps its own result. Autograd adds it to what it unpacks.
    """

    def __init__(self, tensor: Tensor, module: nn.Module | None) -> None:
        self.tensor = tensor.detach()
        self.module = module  # that keeps it
        self.ours = 0  # the bytes that ours would keep for the same call, in one of the call


class Storage:
    """Memory that is kept: by modules, and by what else there is."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.memory = memory
        self.modules: set[nn.Module] = set()
        self.elsewhere = False


class Probe:
    """In the place of a module's own forward: runs it, and notes what it keeps, and what `ours` would."""

    def __init__(self, ours: Callable[[nn.Module, Tensor], Tensor]) -> None:
        self.ours = ours
        self.running: nn.Module | None = None
        self.saved: WeakSet[Saved] = WeakSet()
        self.reached: set[nn.Module] = set()
        self.storages: dict[int, Storage] = {}
        self.last: Saved | None = None
        self.after: dict[nn.Module, int] = {}

    def __call__(self, module: nn.Module, input: Tensor) -> Tensor:
        forward = torchs_forward(module)
        assert forward is not None
        self.reached.add(module)
        before, self.running, self.last = self.running, module, None
        try:
            result = forward(module, input)
        finally:
            self.running = before
        last, self.last = self.last, None
        if last:  # a gradient is recorded, and no checkpoint takes what is saved
            last.ours = self.bytes_of_ours(module, result)
        return result

    def words(self) -> str:
        return ""

    def bytes_of_ours(self, module: nn.Module, like: Tensor) -> int:
        """What ours keeps for a tensor like that; the values do not matter."""
        sizes = []
        with saved_tensors_hooks(lambda t: sizes.append(t.untyped_storage().nbytes()), no_backward):
            self.ours(module, like.detach().requires_grad_())
        return sum(sizes)

    def pack(self, tensor: Tensor) -> Saved:
        saved = Saved(tensor, self.running)
        self.saved.add(saved)
        if self.running:
            self.last = saved
        return saved

    def count(self, others: Iterable[Tensor]) -> None:
        """Once the forward has run: what its graph keeps. `others` are there whatever the modules do."""
        for saved in self.saved:
            if storage := self.storage(saved.tensor):
                if saved.module:
                    storage.modules.add(saved.module)
                else:
                    storage.elsewhere = True
            if saved.module:
                self.after[saved.module] = self.after.get(saved.module, 0) + saved.ours
        for tensor in others:
            if storage := self.storage(tensor):
                storage.elsewhere = True

    def storage(self, tensor: Tensor) -> Storage | None:
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse, for one
            return None
        return self.storages.setdefault(id(memory), Storage(memory))

    def kept(self, converted: set[nn.Module]) -> dict[nn.Module, Kept]:
        """For each module, if those are converted."""
        found = dict.fromkeys(converted, 0.0)
        for storage in self.storages.values():
            if not storage.elsewhere and storage.modules <= converted:
                for module in storage.modules:
                    found[module] += storage.memory.nbytes() / len(storage.modules)
        return {module: Kept(int(found[module]), self.after.get(module, 0)) for module in found}

    def chosen(self) -> dict[nn.Module, Kept]:
        """The modules that keep less once they are converted. One that is not is among what else keeps a tensor."""
        converted = set(self.reached)
        while True:
            kept = self.kept(converted)
            gaining = {module for module in converted if kept[module].ours < kept[module].torchs}
            if gaining == converted:
                return kept
            converted = gaining


def no_backward(_: Any) -> Tensor:
    raise AssertionError("there is no backward of this")


def probed(
    model: nn.Module,
    modules: Sequence[nn.Module],
    ours: Callable[[nn.Module, Tensor], Tensor],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Probe:
    """Runs the model once, with a probe in each of the modules. Buffers and random states are as before."""
    probe = Probe(ours)
    given = tensors_in((args, keywords))
    with restored(model, given), uncompiled(), recording():
        try:
            for module in modules:
                module._clampgrad = probe
            with saved_tensors_hooks(probe.pack, lambda saved: saved.tensor):
                result = model(*args, **keywords)
        finally:
            for module in modules:
                del module._clampgrad
    probe.count([*given, *tensors_in(result), *model.parameters(), *model.buffers()])
    return probe


@contextmanager
def restored(model: nn.Module, given: Sequence[Tensor]) -> Iterator[None]:
    """A block after which buffers and random states are as before: those of BatchNorm and Dropout."""
    before = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    devices: dict[str, set[int]] = {}
    for tensor in itertools.chain(given, model.parameters(), model.buffers()):
        if tensor.device.type not in ("cpu", "meta"):
            devices.setdefault(tensor.device.type, set()).add(tensor.device.index)
    with ExitStack() as states:
        for kind, numbers in (devices or {"cuda": set[int]()}).items():
            states.enter_context(torch.random.fork_rng(sorted(numbers), device_type=kind))
        try:
            yield
        finally:
            with torch.no_grad():
                for module, name, buffer, values in before:
                    if getattr(module, name) is not buffer:
                        setattr(module, name, buffer)
                    # Not where it is the same: an earlier graph may hold it. Its version does not tell.
                    if not buffer.is_meta and not torch.equal(buffer, values):
                        buffer.copy_(values)


@contextmanager
def recording() -> Iterator[None]:
    """A block in which gradients are recorded, whatever is set around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
