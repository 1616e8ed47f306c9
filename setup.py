"""Build of the package. Metadata is in pyproject.toml, the releases of torch in torch_releases.txt.

CLAMPGRAD_PORTABLE=1   no extension: the wheel is for every Python, torch and platform
CLAMPGRAD_REQUIRE_COMPILED=1  without a compiler fail, instead of building that
CLAMPGRAD_DEBUG=1      assertions on, no optimisation
CLAMPGRAD_SANITIZE=1   with the address and undefined behaviour sanitizers (nox -s sanitizers)
CLAMPGRAD_UNITY=0      compile each file by itself (buildtools/unity.py)
CLAMPGRAD_PYTHONS=     modules for these Pythons too, by their headers (buildtools/library.py):
                       names of Pythons, or folders of headers, with a colon between
CLAMPGRAD_CUDA=auto    kernels for CUDA where there is a GPU, and torch and an nvcc allow it
                       (buildtools/cuda_build.py); 0: never, 1: without a GPU too, or fail.
                       TORCH_CUDA_ARCH_LIST names the architectures, and stands for a GPU.

The switches are 0 or 1, and any other value ends the build (buildtools/switches.py).
"""

import os
import re
import sys
import sysconfig
from functools import partial
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

from buildtools.library import LIBRARY, Python, folder, python_of, this_python
from buildtools.package import Build, Package
from buildtools.readme import readme
from buildtools.switches import is_set, portable
from buildtools.torch_here import find_missing_requirement

ROOT = Path(__file__).resolve().parent


# ---- Flags. buildtools/cmake.py hands them to CMakeLists.txt. -----------------------------------

DEBUG, SANITIZED = is_set("CLAMPGRAD_DEBUG"), is_set("CLAMPGRAD_SANITIZE")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZED else []
SYMBOLS = ["-g" if DEBUG else "-g0"]  # Python's own flags say -g
# A file includes the ATen operators that it calls, not all of them.
DEFINES = [
    "-DAT_PER_OPERATOR_HEADERS",
    # Otherwise a library needs glibc 2.32 for it: csrc/base/single_threaded.cpp.
    "-D__libc_single_threaded=clampgrad_single_threaded",
]
OPTIMISATION = ["-O0", "-UNDEBUG"] if DEBUG else ["-O1" if SANITIZED else "-O2", "-DNDEBUG"]
FLAGS = [
    "-Wall",
    "-Wextra",
    "-Werror=switch",  # a case that is forgotten
    "-Wno-unused-parameter",  # torch's headers and torchgen's output are full of these two
    "-Wno-missing-field-initializers",
    "-Wno-maybe-uninitialized",  # GCC warns of torch's headers, wrongly; Clang has no such warning
    "-Wno-unknown-warning-option",
    "-fvisibility=hidden",  # what libtorch and another extension export must not be interposed
    "-fvisibility-inlines-hidden",
    "-fno-semantic-interposition",  # nor what libclampgrad exports
    "-fno-fast-math",  # what -ffast-math in CXXFLAGS would make of a NaN or a subnormal number is wrong
    "-fno-plt",  # small functions of libtorch are called often: each call spares a cache line
]
# Flags of single files (buildtools/flags_of_files.py). Only at -O3 does GCC unroll and
# vectorise as the loops need.
LOOPS = {
    "loops_baseline.cpp": [],
    "loops_avx2.cpp": ["-mavx2"],
    "loops_avx512.cpp": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"],
}
FAST = ["-O3"] if "-O2" in OPTIMISATION else []


def flags_of_files(machine: str) -> dict[str, list[str]]:
    """The flags of single files, for the machine that is built for."""
    return {name: [*FAST, *(flags if machine == "x86_64" else [])] for name, flags in LOOPS.items()}


# How libclampgrad is linked: with the name by which modules ask for it, and with its
# calls bound to its own functions.
NAMED, LIBRARY_LINK_FLAGS = [f"-Wl,-soname,{LIBRARY}"], ["-Wl,-Bsymbolic-functions"]
# A module takes the library beside it, before LD_LIBRARY_PATH is looked at: that is
# what the old kind of tag says.
MODULE_LINK_FLAGS = ["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]
if sys.platform == "darwin":  # not tried
    NAMED, LIBRARY_LINK_FLAGS = [f"-Wl,-install_name,@rpath/{LIBRARY}"], []
    MODULE_LINK_FLAGS = ["-Wl,-rpath,@loader_path"]


# ---- Sources and what they are linked to, which needs torch: metadata do not --------------------


def sources(out: Path, cuda: bool) -> list[Path]:
    """Those of csrc/, and those that are generated in `out` for the torch that is here."""
    import torch

    from buildtools.stamp import header
    from buildtools.unity import group_into_units, write
    from codegen.generate import generate

    write(out / "stamp.h", header(torch.__version__))
    kinds = ("*.cpp", "*.cu") if cuda else ("*.cpp",)
    written = sorted(path for kind in kinds for path in (ROOT / "csrc").rglob(kind))
    files = [*written, *generate(ROOT, out, cuda)]
    return group_into_units(files, out) if is_set("CLAMPGRAD_UNITY", "1") else files


def extensions() -> list[Extension]:
    """libclampgrad, and the modules that link it: for this Python, and for
    those of CLAMPGRAD_PYTHONS."""
    from buildtools.cuda_build import code, cuda_build, runtime

    cuda, why = cuda_build()  # it sets what the next import reads
    print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", flush=True)

    import torch
    from torch.utils import cpp_extension

    from buildtools.unity import needs_python

    package = f"clampgrad._lib.{folder(torch.__version__, torch.version.cuda if cuda else None)}"
    out = ROOT / "build" / "generated" / folder(torch.__version__, None)
    files = sources(out, cuda)
    defines = [*DEFINES, *([f"-DCLAMPGRAD_WITH_CUDA={code()}"] if cuda else [])]
    headers = [str(p) for p in (out, out / "include", ROOT / "csrc", ROOT / "csrc/compat")]
    host = [*OPTIMISATION, *SYMBOLS, *FLAGS, *SANITIZERS, *defines]
    # CUB includes NVTX, which calls dlopen: with Debian 12's, a library would need glibc 2.34.
    device = [*OPTIMISATION, *defines, "-DNVTX_DISABLE", "-Xcompiler=-fvisibility=hidden"]

    def sources_for(of_python: bool) -> list[str]:
        return [os.path.relpath(path, ROOT) for path in files if needs_python(path) == of_python]

    library = (cpp_extension.CUDAExtension if cuda else cpp_extension.CppExtension)(
        f"{package}.{LIBRARY.partition('.')[0]}",
        sources=sources_for(of_python=False),
        include_dirs=[*headers],
        extra_compile_args={"cxx": host, "nvcc": device},
        extra_link_args=[*SANITIZERS, *NAMED, *LIBRARY_LINK_FLAGS],
    )
    library.libraries.remove("torch_python")
    library.file = LIBRARY
    if cuda:  # by the name of its file, which need not be libcudart.so
        file = ":" + os.path.basename(runtime(os.environ["CUDA_HOME"]))
        library.libraries = [file if name == "cudart" else name for name in library.libraries]

    def module(python: Python) -> Extension:
        made = cpp_extension.CppExtension(
            f"{package}.{re.sub(r'[.-]', '_', python.module)}",
            sources=sources_for(of_python=True),
            include_dirs=[str(python.headers), *headers],
            extra_compile_args={"cxx": host},
            extra_link_args=[*SANITIZERS, *MODULE_LINK_FLAGS],
        )
        made.file, made.beside = python.module, library
        return made

    wanted = os.environ.get("CLAMPGRAD_PYTHONS", "").split(os.pathsep)
    pythons = [*map(python_of, filter(None, wanted)), this_python()]
    return [library, *(module(python) for python in {p.module: p for p in pythons}.values())]


class BuildExt(build_ext):
    """Gives way to torch's BuildExtension when it runs, which is when torch is imported."""

    def run(self) -> None:
        from buildtools.flags_of_files import build_extension
        from buildtools.linked import reject_if_faulty

        given = self.distribution
        given.ext_modules = extensions()
        machine = sysconfig.get_platform().rpartition("-")[2]
        from torch.utils.cpp_extension import TORCH_LIB_PATH

        check = partial(reject_if_faulty, torch=TORCH_LIB_PATH)
        given.cmdclass["build_ext"] = build_extension(flags_of_files(machine), check)
        del given.command_obj["build_ext"]
        command = given.get_command_obj("build_ext")
        command.editable_mode = self.editable_mode
        command.ensure_finalized()
        command.run()


commands = {"build": Build, "build_py": Package, "build_ext": BuildExt}
if __name__ == "__main__":
    # setuptools must know that there is an extension; BuildExt fills it in.
    later = (
        [] if portable() or find_missing_requirement() else [Extension("clampgrad._C", sources=[])]
    )
    shown = {"long_description": readme(), "long_description_content_type": "text/markdown"}
    setup(ext_modules=later, cmdclass=commands, **shown)
