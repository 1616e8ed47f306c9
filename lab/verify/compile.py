"""One C++ file with the nodes and kernels that are proved, under names of their own, compiled and linked.

Loaded into a stock torch, it registers its kernels over `aten::` at the alias key Autograd; its nodes
are classes of their own, so nothing of libtorch is interposed and the library may be loaded late.
"""

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ..series import Refusal
from .generate import FAMILY, Code, recorders
from .native import DEFINES, Added
from .restated import CALLS, HELPERS
from .text import MANUAL


def chosen(code: Code, names: set[str]) -> dict[str, str]:
    """The kernels that changed; the whole family of clamp, if one of it did."""
    whole = any(FAMILY.match(name) for name in names)
    return {
        n: text for n, text in recorders(code).items() if n in names or (whole and FAMILY.match(n))
    }


def source(code: Code, names: set[str], prelude: str) -> str:
    kernels = chosen(code, names)
    body = "\n".join(kernels.values())
    nodes = [name for name in code.nodes if re.search(rf"\b{name}\b", body)]
    kernel_prelude = code.kernel_prelude.split("using namespace")[0]
    registrations = "\n".join(
        f'  m.impl("{code.registrations[name]}", TORCH_FN({name}));' for name in kernels
    )
    helpers = code.node_prelude.split("namespace torch::autograd::generated {", 1)
    helper_prelude, helper_functions = helpers[0], helpers[1]
    text = "\n".join(
        [
            kernel_prelude.replace("#pragma once", ""),
            re.sub(r"^using .*\n", "", helper_prelude, flags=re.M),
            "#include <ATen/TensorSubclassLikeUtils.h>\n",
            prelude,
            "using namespace torch::autograd::generated::details;",
            "using namespace at;",
            "namespace torch::autograd::generated { namespace {",
            code.manual,
            helper_functions,
            HELPERS,
            *(code.structs[name] for name in nodes),
            *(re.sub(CALLS, r"proved_\1(", code.nodes[name]) for name in nodes),
            re.sub(CALLS, r"proved_\1(", body),
            "TORCH_LIBRARY_IMPL(aten, Autograd, m) {",
            registrations,
            "}",
            "} }",
        ]
    )
    for name in (*nodes, *MANUAL):
        text = re.sub(rf"\b{name}(?=\b|_apply_functional)", f"Proved{name}", text)
    return text


def compiler() -> list[str]:
    command = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(command[0]):
        raise Refusal(f"There is no C++ compiler {command[0]}: install one, or name it in CXX.")
    return command


def compiled(code: Code, directory: Path, names: set[str], added: Added) -> Path:
    """The library; refuses with the compiler's first errors."""
    # It looks for a compiler and for CUDA when it is imported, and may complain.
    from torch.utils.cpp_extension import include_paths, library_paths

    path, library = directory / "proved.cpp", directory / "libproved.so"
    path.write_text(source(code, names, added.prelude))
    standard = "c++20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13) else "c++17"
    flags = [
        f"-std={standard}",
        "-DNDEBUG",
        "-w",
        "-fPIC",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(DEFINES if added.sources else []),
        *added.include,
        f"-I{directory}",  # torch/csrc and aten/, as far as a patch changes their headers
        f"-I{directory}/aten/src",
        *(f"-I{p}" for p in (*include_paths(), sysconfig.get_path("include"))),
    ]
    sources = [(path, ["-O0"]), *added.sources]
    objects = [directory / f"{n}.o" for n in range(len(sources))]
    with ThreadPoolExecutor(2) as pool:
        commands = [
            [*flags, *own, "-c", str(file), "-o", str(o)]
            for (file, own), o in zip(sources, objects)
        ]
        list(pool.map(run, commands))
    run(
        [
            *map(str, objects),
            "-shared",
            "-Wl,--no-undefined",  # what libtorch does not export is named now, not when it is loaded
            "-o",
            str(library),
            *(f"-L{p}" for p in library_paths()),
            "-ltorch_cpu",
            "-lc10",
            "-ltorch",
        ]
    )
    return library


def run(arguments: list[str]) -> None:
    result = subprocess.run([*compiler(), *arguments], capture_output=True, text=True)
    if result.returncode:
        lines = [re.sub(r"^/\S*/(\w+\.\w+)", r"\1", line) for line in result.stderr.splitlines()]
        errors = [line for line in lines if "error:" in line or "undefined reference" in line]
        raise Refusal("The code does not compile:\n" + "\n".join(dict.fromkeys(errors[:8])))
