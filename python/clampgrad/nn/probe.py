"""Measures what each of some modules saves for backward that nothing else saves, in one forward of
a model."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from clampgrad._torch.compiler import uncompiled
from clampgrad._torch.modules import OVERRIDE, buffers_of, torchs_forward
from clampgrad.nn.forward import call_function


class SavedBytes(NamedTuple):
    """Bytes that a module saves in all its calls."""

    before: int  # by torch's forward, where nothing else saves them
    after: int  # by the converted module


class SavedTensor:
    """What the graph holds in place of a tensor; it dies with that part of the graph.

    The tensor is detached: with its history, a node that saves its own result would be a cycle.
    Autograd adds the history to what it unpacks.
    """

    def __init__(self, tensor: Tensor, module: nn.Module | None) -> None:
        self.tensor: Tensor | None = tensor.detach()
        self.module = module  # that runs, if it is one of those that are measured
        # That the call saves if the module is converted, noted in one of its saved tensors. None:
        # they cannot be measured.
        self.bytes_if_converted: int | None = 0


class Storage:
    """Memory that a graph holds: for modules that are measured, or for something else."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.nbytes = memory.nbytes()
        self.reference = StorageWeakRef(memory)
        self.modules: set[nn.Module] = set()
        self.is_held_elsewhere = False


class Probe:
    """Runs in place of a module's forward: calls torch's, and notes what that saves, and what the
    converted module would save."""

    def __init__(self) -> None:
        self.thread: int | None = threading.get_ident()
        self.running: nn.Module | None = None
        self.last_saved: SavedTensor | None = None
        self.saved: WeakSet[SavedTensor] = WeakSet()
        self.storages: list[Storage] = []
        self.reached: set[nn.Module] = set()
        self.unmeasured: set[nn.Module] = set()  # what they save if converted is not known
        self.bytes_after: dict[nn.Module, int] = {}

    def __call__(self, module: nn.Module, input: Tensor) -> Tensor:
        forward = torchs_forward(module)
        assert forward is not None
        if threading.get_ident() != self.thread:  # hooks do not see its tensors; or all is over
            return forward(module, input)
        self.reached.add(module)
        outer, self.running, self.last_saved = self.running, module, None
        try:
            result = forward(module, input)
        finally:
            self.running = outer
        last, self.last_saved = self.last_saved, None
        if last:  # a gradient is recorded, and no checkpoint takes what is saved
            last.bytes_if_converted = self.measure_converted(module, result)
        return result

    def call_plain(self, module: nn.Module, input: Tensor) -> None:
        """Returns None, so that every call is measured."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy of the module, made in the forward, runs torch's own

    def extra_repr(self) -> str:
        return ""

    def measure_converted(self, module: nn.Module, like: Tensor) -> int | None:
        """Returns the bytes that the converted module saves for a tensor like that, whatever its
        values; None in torch.func or for a sparse tensor. They are the same in place."""
        sizes: list[int] = []
        try:
            with saved_tensors_hooks(lambda t: sizes.append(t.untyped_storage().nbytes()), unpack):
                call_function(module, like.detach().requires_grad_(), inplace=False)
        except RuntimeError:
            return None
        return sum(sizes)

    def pack(self, tensor: Tensor) -> SavedTensor:
        saved = SavedTensor(tensor, self.running)
        self.saved.add(saved)
        if self.running:
            self.last_saved = saved
        return saved

    def end(self) -> None:
        """Counts what the graph of the result holds. The graph is of no use afterwards.

        It is called once the forward has run, while its arguments and its result are there.
        """
        storages: dict[StorageWeakRef, Storage] = {}
        for saved in self.saved:
            if saved.module:
                if saved.bytes_if_converted is None:
                    self.unmeasured.add(saved.module)
                earlier = self.bytes_after.get(saved.module, 0)
                self.bytes_after[saved.module] = earlier + (saved.bytes_if_converted or 0)
            with suppress(RuntimeError, NotImplementedError):  # a sparse tensor has no storage
                storage = Storage(unpack(saved).untyped_storage())
                storage = storages.setdefault(storage.reference, storage)
                if saved.module:
                    storage.modules.add(saved.module)
                else:
                    storage.is_held_elsewhere = True
            saved.tensor = None
        for storage in storages.values():
            # Something else has it: an argument, a result, a parameter, an attribute.
            storage.is_held_elsewhere |= not storage.reference.expired()
        self.storages = [*storages.values()]
        self.thread = None

    def count_bytes(self, converted: set[nn.Module]) -> dict[nn.Module, SavedBytes]:
        """Returns what each of these modules saves if exactly they are converted."""
        before = dict.fromkeys(converted, 0.0)
        for storage in self.storages:
            if not storage.is_held_elsewhere and storage.modules <= converted:
                for module in storage.modules:
                    before[module] += storage.nbytes / len(storage.modules)
        return {m: SavedBytes(int(before[m]), self.bytes_after.get(m, 0)) for m in before}

    def choose_modules(self) -> dict[nn.Module, SavedBytes]:
        """Returns the modules that save less once they are converted. What a module that is not
        converted saves is held elsewhere for the others, so this repeats until none drops out."""
        converted = self.reached - self.unmeasured
        while True:
            saved = self.count_bytes(converted)
            gaining = {module for module in converted if saved[module].after < saved[module].before}
            if gaining == converted:
                return saved
            converted = gaining


def unpack(saved: SavedTensor) -> Tensor:
    if saved.tensor is None:
        raise RuntimeError(
            "clampgrad.nn.convert made this graph for its example, and is done with it"
        )
    return saved.tensor


# The compiler is turned off for the whole process, and modules of two models may be the same.
_one_at_a_time = threading.RLock()


def probe_model(
    model: nn.Module,
    modules: Sequence[nn.Module],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Probe:
    """Runs the model once with a probe in each of the modules, and restores buffers and random
    generators."""
    probe = Probe()
    with (
        _one_at_a_time,
        preserve_state(model),
        refuse_initialisation(model),
        uncompiled(),
        enable_recording(),
    ):
        try:
            for module in modules:
                setattr(module, OVERRIDE, probe)
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
                vars(module).pop(OVERRIDE, None)
        probe.end()
        del result  # it was there until now
    return probe


@contextmanager
def enable_recording() -> Iterator[None]:
    """Opens a block in which gradients are recorded, whatever is set around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def refuse_initialisation(model: nn.Module) -> Iterator[None]:
    """Opens a block in which the first call of a lazy module raises, because what it makes of its
    parameters and buffers cannot be taken back."""

    def refuse(module: nn.Module, _: Any) -> None:
        raise ValueError(
            f"clampgrad.nn.convert: a {type(module).__name__} is not initialised yet, and the forward of the example "
            "would do it: call the model once, and convert it then"
        )

    with ExitStack() as hooks:
        for module in model.modules():
            tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            if any(map(is_lazy, tensors)):
                handle = module.register_forward_pre_hook(refuse, prepend=True)
                hooks.callback(handle.remove)
        yield


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Opens a block that restores buffers, which BatchNorm changes, and torch's default random
    generators, which Dropout uses."""
    before = [
        (module, buffers := buffers_of(module), dict(buffers), copy_buffers(buffers))
        for module in model.modules()
    ]
    with torch.random.fork_rng([]), ExitStack() as states:  # the CPU's
        for kind, indices in find_accelerators(model).items():
            states.enter_context(torch.random.fork_rng(sorted(indices), device_type=kind))
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
                # An earlier graph may hold a buffer, so this must not count as a change of it.
                for buffer, shape, value in values:
                    if (buffer.shape, buffer.dtype) == (shape, value.dtype):
                        each_element_once(buffer).copy_(value)
                    else:  # an observer of torch.ao resizes its own
                        buffer.data = value.expand(shape)


def copy_buffers(
    buffers: Mapping[str, Tensor | None],
) -> list[tuple[Tensor, torch.Size, Tensor]]:
    """Returns the buffers that are plain memory, with their shapes and copies of their values."""
    plain = (b for b in buffers.values() if b is not None and not is_lazy(b))
    return [(b, b.shape, each_element_once(b).clone()) for b in plain if b.layout == torch.strided]


def each_element_once(buffer: Tensor) -> Tensor:
    """Returns a view whose changes do not count as changes of the buffer, with each element of an
    expanded buffer once."""
    steps = buffer.stride()
    return buffer.data[tuple(slice(0, 1) if step == 0 else slice(None) for step in steps)]


def find_accelerators(model: nn.Module) -> dict[str, set[int]]:
    """Returns the devices of a model that have random generators of their own."""
    devices: dict[str, set[int]] = {}
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.device.type not in ("cpu", "meta"):
            devices.setdefault(tensor.device.type, set()).add(tensor.device.index)
    return devices
