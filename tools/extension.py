"""The compiled extension: whether it can be built here, and how."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from setuptools import Extension

from tools.switches import is_set

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (2, 11), (2, 15)  # the releases of torch that the C++ is for

WINDOWS = sys.platform == "win32"
DEBUG, SANITIZED = is_set("CLAMPGRAD_DEBUG"), is_set("CLAMPGRAD_SANITIZE")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZED else []
OPTIMISATION = ["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-O1" if SANITIZED else "-O2", "-DNDEBUG"]
WARNINGS = [
    "-Wall",
    "-Wextra",
    # What torch's headers and torchgen's output are full of.
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]
GCC_ALONE = ["-Wno-maybe-uninitialized"]  # in torch's headers, wrongly
# Macros take apart what __VA_ARGS__ brings, as the standard says. Optimisation, warnings and the standard
# are those that setuptools and torch ask for. No /openmp: the runtime of libtorch is not Microsoft's.
MSVC = ["/Zc:preprocessor", "/permissive-", "/bigobj", *(["/Od", "/UNDEBUG"] if DEBUG else [])]


def compiler() -> list[str]:
    """The command that compiles C++: a wrapper as ccache, if any, the compiler, and options."""
    command = os.environ.get("CXX") or ("cl" if WINDOWS else "c++")
    return shlex.split(command, posix=not WINDOWS)


def cannot_build() -> str | None:
    """What is missing, before anything of torch is imported."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return "torch was not there when it was built"
    if not OLDEST <= tuple(map(int, torch.split(".")[:2])) <= NEWEST:
        return f"it was built beside torch {torch}, which its C++ is not for"
    # A wrapper, as ccache, is no compiler; the compiler is the last word before its options.
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), compiler()))
    if not all(map(shutil.which, names)):
        return f"there was no C++ compiler when it was built (no {names[-1]} on PATH)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of Python were not there when it was built"
    return None


def folder(torch: str, cuda: str | None) -> str:
    """Where the library for a torch is, under clampgrad/_lib: "torch_2_13", "torch_2_13_cu13"."""
    name = "torch_" + "_".join(torch.split(".")[:2])
    return f"{name}_cu{cuda.split('.')[0]}" if cuda else name


def flags(says: str | None) -> list[str]:
    """What files of C++ are compiled with, but for definitions. `says` is what GCC or Clang says of its
    version; MSVC has no such option."""
    if says is None:
        if SANITIZED:
            raise SystemExit("CLAMPGRAD_SANITIZE=1 needs GCC or Clang")
        return MSVC
    return [
        *OPTIMISATION,
        *([] if DEBUG else ["-g0"]),
        *SANITIZERS,
        *WARNINGS,
        # Hidden symbols: what libtorch and another extension export must not be interposed.
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        # Small functions of libtorch are called often: each call spares a line of the cache.
        "-fno-plt",
        *([] if "clang" in says else GCC_ALONE),
    ]


def extension() -> tuple[Extension, type]:
    """The extension, and the command that builds it."""
    from tools.cuda_build import code, cuda_build

    cuda, why = cuda_build()  # sets what the next import reads

    import torch
    from torch.utils import cpp_extension

    from tools.sources import sources, write
    from tools.stamp import header

    class Build(cpp_extension.BuildExtension):
        """Generates code before it compiles; which files there are is known only then."""

        def build_extensions(self) -> None:
            print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", flush=True)
            out = ROOT / "build" / "generated" / folder(torch.__version__, None)
            release = ".".join(torch.__version__.split(".")[:2])
            write(out / "python" / "stamp.h", header(self.distribution.get_version(), release))
            (only,) = self.extensions
            only.sources += [os.path.relpath(p, ROOT) for p in sources(out, cuda)]
            csrc = ROOT / "csrc"
            only.include_dirs += [str(p) for p in (out, out / "include", csrc, csrc / "compat")]
            super().build_extensions()

        def copy_extensions_to_source(self) -> None:
            (only,) = self.extensions
            Path("python", *only.name.split(".")[:-1]).mkdir(parents=True, exist_ok=True)
            super().copy_extensions_to_source()

    # A file includes the ATen operators that it calls, not all of them: it compiles sooner.
    defines = ["-DAT_PER_OPERATOR_HEADERS", "-DCLAMPGRAD_EXPORTS"]
    defines += [f"-DCLAMPGRAD_WITH_CUDA={code()}"] if cuda else []
    says = None
    if WINDOWS:
        os.environ.setdefault("DISTUTILS_USE_SDK", "1")  # the compiler is the one on PATH
    else:
        says = subprocess.check_output([*compiler(), "--version"], text=True)
    host = "/Zc:preprocessor" if WINDOWS else "-fvisibility=hidden"
    kind = cpp_extension.CUDAExtension if cuda else cpp_extension.CppExtension
    library = kind(
        f"clampgrad._lib.{folder(torch.__version__, torch.version.cuda if cuda else None)}._C",
        sources=[],
        extra_link_args=SANITIZERS,
        extra_compile_args={
            "cxx": [*flags(says), *defines],
            "nvcc": [*OPTIMISATION, *defines, f"-Xcompiler={host}"],
        },
    )
    return library, Build
