"""What each of some modules keeps for backward that nothing else keeps: measured in one forward of a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from clampgrad._torch.compiler import uncompiled
from clampgrad._torch.modules import torchs_forward


class Kept(NamedTuple):
    """Bytes that a module keeps in all its calls."""

    torchs: int  # of torch's, those that nothing else keeps
    ours: int  # after a conversion


class Storage:
    """Memory that is kept: by modules, and by what else there is."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.memory = memory  # alive, so that no other has its address
        self.modules: set[nn.Module] = set()
        self.elsewhere = False


class Probe:
    """In the place of a module's own forward: runs it, and notes what it keeps, and what `ours` would."""

    def __init__(self, ours: Callable[[nn.Module, Tensor], Tensor]) -> None:
        self.ours = ours
        self.running: nn.Module | None = None
        self.storages: dict[int, Storage] = {}
        self.after: dict[nn.Module, int] = {}
        self.reached: set[nn.Module] = set()
        self.boxes: list[list[Tensor]] = []

    def __call__(self, module: nn.Module, input: Tensor) -> Tensor:
        forward = torchs_forward(module)
        assert forward is not None
        before, self.running = self.running, module
        packed = len(self.boxes)
        try:
            result = forward(module, input)
        finally:
            self.running = before
        self.reached.add(module)
        if (
            len(self.boxes) > packed
        ):  # a gradient is recorded, and no checkpoint takes what is saved
            self.after[module] = self.after.get(module, 0) + self.bytes_of_ours(module, result)
        return result

    def words(self) -> str:
        return ""

    def bytes_of_ours(self, module: nn.Module, like: Tensor) -> int:
        """What ours keeps, for a tensor like the result: a gradient of ours depends on neither."""
        sizes = []
        with saved_tensors_hooks(lambda t: sizes.append(t.untyped_storage().nbytes()), no_backward):
            self.ours(module, like.detach().requires_grad_())
        return sum(sizes)

    def storage(self, tensor: Tensor) -> Storage | None:
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse, for one
            return None
        return self.storages.setdefault(id(memory), Storage(memory))

    def pack(self, tensor: Tensor) -> list[Tensor]:
        if storage := self.storage(tensor):
            if self.running:
                storage.modules.add(self.running)
            else:
                storage.elsewhere = True
        # A box, which is emptied in the end: an operator's result in its own node would never be freed.
        self.boxes.append([tensor])
        return self.boxes[-1]

    def keep(self, tensors: Any) -> None:
        """Notes what is kept whatever the modules do: arguments, results, parameters."""
        for tensor in tensors:
            if isinstance(tensor, Tensor) and (storage := self.storage(tensor)):
                storage.elsewhere = True

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
    given = [t for t in tree_leaves((args, keywords)) if isinstance(t, Tensor)]
    probe.keep([*given, *model.parameters(), *model.buffers()])
    with (
        restored(model, given),
        torch.inference_mode(False),
        torch.enable_grad(),
        uncompiled(),
    ):
        try:
            for module in modules:
                module._clampgrad = probe
            with saved_tensors_hooks(probe.pack, lambda box: box[0]):
                probe.keep(tree_leaves(model(*args, **keywords)))
        finally:
            for module in modules:
                del module._clampgrad
            for box in probe.boxes:
                box.clear()
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
                    # BatchNorm changes its buffers without counting that as a change. If nothing changed them, a graph
                    # that was recorded before may hold them, and must not find them changed either.
                    if buffer.shape == values.shape:
                        buffer.data.copy_(values)
                    else:  # an observer of torch.ao resizes its own
                        buffer.data = values
