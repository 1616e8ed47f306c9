"""What a record says of the machine that it was made on, under the key "machine"."""

import os
import platform
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent))

from tools.source_build.machine import processor  # noqa: E402


def machine():
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
    }
