"""The device of `pytest --device mock`: an accelerator in the host's memory, for
tests of devices without a GPU.

Its operators run on the CPU, but its Tensors are not the CPU's: they have no `numpy()`, do not mix
with those of the CPU, and take no generator of the CPU. Their backward runs in a thread of its own.
clampgrad has no kernels for it, so compositions run there.
"""

import contextlib
import os
import subprocess
import types
from pathlib import Path

import torch
from torch.utils import cpp_extension

ROOT = Path(__file__).resolve().parents[1]
# What torch asks of `torch.mock`. Random numbers come from the CPU's generator.
MODULE = {
    "current_device": lambda: 0,
    "device": lambda device: contextlib.nullcontext(),
    "device_count": lambda: 1,
    "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    "synchronize": lambda device=None: None,
    "_is_in_bad_fork": lambda: False,
}


def compiled():
    """The library for this torch. It is compiled if the source is newer."""
    source = ROOT / "test/cpp/mock_device.cpp"
    library = ROOT / f"build/mock_device-{torch.__version__}.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(exist_ok=True)
        command = [
            *(os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-w", str(source)),
            *(f"-I{path}" for path in cpp_extension.include_paths()),
            *(f"-L{path}" for path in cpp_extension.library_paths()),
            *("-lc10", "-ltorch", "-ltorch_cpu", "-o", str(library)),
        ]
        subprocess.run(command, check=True)
    return library


def register():
    """Makes the device known to torch, before the first backward: then torch
    starts a thread for each device."""
    torch.ops.load_library(compiled())
    torch.utils.rename_privateuse1_backend("mock")
    module = types.ModuleType("torch.mock")
    module.__dict__.update(MODULE)
    torch._register_device_module("mock", module)
    torch.utils.generate_methods_for_privateuse1_backend()
