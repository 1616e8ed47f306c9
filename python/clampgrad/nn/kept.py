"""What each of some modules keeps for backward that nothing else keeps:
measured in one forward of a model."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from clampgrad._torch.compiler import uncompiled
from clampgrad._torch.modules import buffers_of, torchs_forward


class Kept(NamedTuple):
    """Bytes that a module keeps in all its calls."""

    torchs: int  # of torch's, those that nothing else keeps
    ours: int  # after a conversion


class Saved:
    """What the graph keeps in place of a tensor; once that part of the graph is gone, so is this.

    It has no history: that would be a cycle where a node keeps its own result.
    Autograd adds it to what it unpacks.
    """

    def __init__(self, tensor: Tensor, module: nn.Module | None) -> None:
        self.tensor: Tensor | None = tensor.detach()
        self.module = module  # that keeps it
        self.ours: int | None = (
            0  # the bytes that ours would keep for the same call, in one of the call
        )


class Storage:
    """Memory that a graph keeps: for modules of those that are asked
    about, or for something else."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.nbytes = memory.nbytes()
        self.reference = StorageWeakRef(memory)
        self.modules: set[nn.Module] = set()
        self.elsewhere = False


class Probe:
    """In the place of a module's own forward: runs it, and notes what it
    keeps, and what `ours` would."""

    def __init__(self, ours: Callable[[nn.Module, Tensor], Tensor]) -> None:
        self.ours = ours
        self.thread: int | None = threading.get_ident()
        self.running: nn.Module | None = None
        self.last: Saved | None = None
        self.saved: WeakSet[Saved] = WeakSet()
        self.storages: list[Storage] = []
        self.reached: set[nn.Module] = set()
        self.unknown: set[nn.Module] = set()  # for which it cannot be measured what ours keeps
        self.after: dict[nn.Module, int] = {}

    def __call__(self, module: nn.Module, input: Tensor) -> Tensor:
        forward = torchs_forward(module)
        assert forward is not None
        if threading.get_ident() != self.thread:  # what it keeps is not seen here; or all is over
            return forward(module, input)
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

    def plain(self, module: nn.Module, input: Tensor) -> None:
        """Nothing is passed over here."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy that the model makes of a module runs torch's own

    def words(self) -> str:
        return ""

    def bytes_of_ours(self, module: nn.Module, like: Tensor) -> int | None:
        """What ours keeps for a tensor like that, whatever its values; or None, in
        torch.func or on a sparse tensor."""
        sizes = []
        try:
            with saved_tensors_hooks(lambda t: sizes.append(t.untyped_storage().nbytes()), unpack):
                self.ours(module, like.detach().requires_grad_())
        except (RuntimeError, NotImplementedError):
            return None
        return sum(sizes)

    def pack(self, tensor: Tensor) -> Saved:
        saved = Saved(tensor, self.running)
        self.saved.add(saved)
        if self.running:
            self.last = saved
        return saved

    def count(self) -> None:
        """Once the forward has run, while its arguments and its result are there: what the graph of
        the result keeps. The graph is of no use afterwards."""
        found: dict[StorageWeakRef, Storage] = {}
        for saved in self.saved:
            if saved.module:
                if saved.ours is None:
                    self.unknown.add(saved.module)
                self.after[saved.module] = self.after.get(saved.module, 0) + (saved.ours or 0)
            with suppress(RuntimeError, NotImplementedError):  # a sparse tensor has no storage
                storage = Storage(unpack(saved).untyped_storage())
                storage = found.setdefault(storage.reference, storage)
                if saved.module:
                    storage.modules.add(saved.module)
                else:
                    storage.elsewhere = True
            saved.tensor = None
        for storage in found.values():
            # Something else has it: an argument, a result, a parameter, an attribute.
            storage.elsewhere |= not storage.reference.expired()
        self.storages = [*found.values()]
        self.thread = None

    def kept(self, converted: set[nn.Module]) -> dict[nn.Module, Kept]:
        """For each module, if those are converted."""
        found = dict.fromkeys(converted, 0.0)
        for storage in self.storages:
            if not storage.elsewhere and storage.modules <= converted:
                for module in storage.modules:
                    found[module] += storage.nbytes / len(storage.modules)
        return {module: Kept(int(found[module]), self.after.get(module, 0)) for module in found}

    def chosen(self) -> dict[nn.Module, Kept]:
        """The modules that keep less once they are converted. One that is not is
        among what else keeps a tensor."""
        converted = self.reached - self.unknown
        while True:
            kept = self.kept(converted)
            gaining = {module for module in converted if kept[module].ours < kept[module].torchs}
            if gaining == converted:
                return kept
            converted = gaining


def unpack(saved: Saved) -> Tensor:
    if saved.tensor is None:
        raise RuntimeError(
            "clampgrad.nn.convert made this graph for its example, and is done with it"
        )
    return saved.tensor


# The compiler is turned off for the whole process, and modules of two models may be the same.
_one_at_a_time = threading.RLock()


def probed(
    model: nn.Module,
    modules: Sequence[nn.Module],
    ours: Callable[[nn.Module, Tensor], Tensor],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Probe:
    """Runs the model once, with a probe in each of the modules. Buffers and
    random states are as before."""
    probe = Probe(ours)
    with _one_at_a_time, restored(model), initialising_nothing(model), uncompiled(), recording():
        try:
            for module in modules:
                module._clampgrad = probe
            with saved_tensors_hooks(probe.pack, unpack):
                result = model(*args, **keywords)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            raise RuntimeError(
                "clampgrad.nn.convert cannot measure with example_inputs what this model keeps: "
                "it calls torch.func where that refuses hooks of saved tensors"
            ) from error
        finally:
            for module in modules:
                vars(module).pop("_clampgrad", None)
        probe.count()
        del result  # it was there until now
    return probe


@contextmanager
def recording() -> Iterator[None]:
    """A block in which gradients are recorded, whatever is set around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def initialising_nothing(model: nn.Module) -> Iterator[None]:
    """A block in which the first call of a lazy module raises, because what it makes of its
    parameters and buffers cannot be taken back."""

    def refuse(module: nn.Module, _: Any) -> None:
        raise ValueError(
            f"clampgrad.nn.convert: a {type(module).__name__} is not initialised yet, and the forward of the example "
            "would do it: call the model once, and convert it then"
        )

    with ExitStack() as hooks:
        for module in model.modules():
            own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            if any(map(is_lazy, own)):
                handle = module.register_forward_pre_hook(refuse, prepend=True)
                hooks.callback(handle.remove)
        yield


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """A block after which buffers and torch's default random generators are as before: BatchNorm
    changes the ones, Dropout the others."""
    before = [
        (module, buffers := buffers_of(module), dict(buffers), values_of(buffers))
        for module in model.modules()
    ]
    with torch.random.fork_rng([]), ExitStack() as states:  # the CPU's
        for kind, numbers in accelerators(model).items():
            states.enter_context(torch.random.fork_rng(sorted(numbers), device_type=kind))
        try:
            yield
        finally:
            for module, buffers, members, values in before:
                if isinstance(buffers, dict):
                    buffers.clear()
                    buffers.update(members)
                else:  # a scripted module keeps its own
                    for name, buffer in members.items():
                        setattr(module, name, buffer)
                # A graph that was recorded before may hold a buffer, so this does
                # not count as a change of it.
                for buffer, shape, value in values:
                    if (buffer.shape, buffer.dtype) == (shape, value.dtype):
                        without_repeats(buffer).copy_(value)
                    else:  # an observer of torch.ao resizes its own
                        buffer.data = value.expand(shape)


def values_of(
    buffers: Mapping[str, Tensor | None],
) -> list[tuple[Tensor, torch.Size, Tensor]]:
    """The buffers that are plain memory, with their shapes and copies of their values."""
    plain = (b for b in buffers.values() if b is not None and not is_lazy(b))
    return [(b, b.shape, without_repeats(b).clone()) for b in plain if b.layout == torch.strided]


def without_repeats(buffer: Tensor) -> Tensor:
    """The same memory, whose changes do not count as changes of the buffer; of what is
    expanded, each element once."""
    steps = buffer.stride()
    return buffer.data[tuple(slice(0, 1) if step == 0 else slice(None) for step in steps)]


def accelerators(model: nn.Module) -> dict[str, set[int]]:
    """The devices of a model that have random generators of their own."""
    found: dict[str, set[int]] = {}
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.device.type not in ("cpu", "meta"):
            found.setdefault(tensor.device.type, set()).add(tensor.device.index)
    return found
