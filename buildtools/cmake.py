"""What CMakeLists.txt builds, as a file of CMake: `python -m buildtools.cmake OUT MACHINE`
generates code in the folder OUT and writes OUT/build.cmake. MACHINE is what is built for, as CMake
calls it. Sources, flags and the decision on CUDA are those of setup.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import setup

from buildtools.cuda_build import code, cuda_build
from buildtools.unity import needs_python

ROOT = Path(__file__).resolve().parent.parent


def script(out: Path, machine: str) -> str:
    import torch

    cuda, why = cuda_build(pip=False)  # torch's own CMake package wants a toolkit
    print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", file=sys.stderr)
    files = [path for path in setup.sources(out, cuda) if not needs_python(path)]
    # CMake's type of a build decides whether it is optimised. The loops always
    # are, unless they are debugged.
    given = {f: f"$<$<CONFIG:Release,RelWithDebInfo>:{f}>" for f in setup.OPTIMISATION}
    given |= {f: f"$<$<NOT:$<CONFIG:Debug>>:{f}>" for f in setup.FAST}
    flags_of = setup.flags_of_files(machine)
    defines = [*setup.DEFINES, *([f"-DCLAMPGRAD_WITH_CUDA={code()}"] if cuda else [])]
    variables = {
        "sources": [path.as_posix() for path in files],
        "flags": [*(given[f] for f in setup.OPTIMISATION), *setup.FLAGS],
        "link_flags": setup.LIBRARY_LINK_FLAGS,
        "defines": [flag.removeprefix("-D") for flag in defines],
        "release": [torch.__version__.split("+")[0]],
        "torch_package": [torch.utils.cmake_prefix_path],
        "toolkit": [os.environ["CUDA_HOME"]] if cuda else [],
        "architectures": os.environ["TORCH_CUDA_ARCH_LIST"].split(";") if cuda else [],
    }
    lines = [f"set({name} {' '.join(map(quoted, values))})" for name, values in variables.items()]
    for path in files:
        own = [given.get(flag, flag) for flag in flags_of.get(path.name, [])]
        if own:
            flags = quoted(";".join(own))
            lines.append(
                f"set_source_files_properties({path.as_posix()} PROPERTIES COMPILE_OPTIONS {flags})"
            )
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    out, machine = Path(sys.argv[1]), sys.argv[2]
    text = script(out, machine)
    (out / "build.cmake").write_text(text)
