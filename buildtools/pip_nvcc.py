"""CUDA's compiler as pip brings it: packages of NVIDIA's that complete what torch's
own requirements have installed.

    python -m buildtools.pip_nvcc

It prints what pip is to install beside the torch that is here; `make nvcc` installs it.
They are in one folder with the headers and libraries that torch requires. `cuda-toolkit`
has no files: it keeps the versions of the others together, where pip alone would mix a
compiler and headers of two releases.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

# The compiler's driver; its headers; its optimiser; and the headers that cuda_fp16.h includes.
PACKAGES = "cuda-toolkit[nvcc,crt,nvvm,cccl]"
OLDEST = 13  # the first CUDA whose packages share a folder


def requirement(cuda: str) -> str | None:
    """What pip is to install for torch.version.cuda, as "13.0"; None where it has no such packages.
    The package says the same when it is installed (clampgrad/cli/info.py)."""
    return f"{PACKAGES}=={cuda}.*" if int(cuda.split(".")[0]) >= OLDEST else None


def nvcc_beside(torch: Path, cuda: str) -> list[str]:
    """The compilers beside the folder of torch and, for a build in
    isolation, in the environment itself."""
    sites = [torch.parent, Path(sysconfig.get_path("purelib"))]
    compilers = (site / f"nvidia/cu{cuda.split('.')[0]}/bin/nvcc" for site in dict.fromkeys(sites))
    return [str(nvcc) for nvcc in compilers if nvcc.is_file()]


if __name__ == "__main__":
    import torch

    cuda = torch.version.cuda
    if cuda is None:
        sys.exit(f"torch {torch.__version__} is a build without CUDA")
    print(
        requirement(cuda) or sys.exit(f"pip has no compiler for CUDA {cuda}: install its toolkit")
    )
