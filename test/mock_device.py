"""`pytest --device mock`: an accelerator in the host's memory, so that a test which is not device-clean fails without a GPU.

Its Tensors are not the CPU's: they have no `numpy()`, do not mix with those of the CPU, take no generator of the
CPU, and their backward runs in a thread of its own. clampgrad has no kernels for it, so compositions run there.
"""

import types
from pathlib import Path

import torch
from torch.utils import cpp_extension

# What torch asks of `torch.mock`. Random numbers are those of the CPU's generator.
MODULE = {
    "current_device": lambda: 0,
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
ROOT = Path(__file__).resolve().parents[1]


def register():
    """Compiles the device if need be (a minute), and makes it known to torch."""
    folder = ROOT / "build" / f"mock-{torch.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    cpp_extension.load(
        "mock_device",
        [str(ROOT / "test/cpp/mock_device.cpp")],
        extra_cflags=["-O0", "-g0"],
        build_directory=str(folder),
        is_python_module=False,
    )
    torch.utils.rename_privateuse1_backend("mock")
    module = types.ModuleType("torch.mock")
    module.__dict__.update(MODULE)
    torch._register_device_module("mock", module)
    torch.utils.generate_methods_for_privateuse1_backend()
