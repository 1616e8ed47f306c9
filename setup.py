"""Build of the package. Metadata is in pyproject.toml, the releases of torch in torch_releases.txt.

CLAMPGRAD_PORTABLE=1   no extension: the wheel is for every Python, torch and platform
CLAMPGRAD_REQUIRE_COMPILED=1  without a compiler fail, instead of building that
CLAMPGRAD_DEBUG=1      assertions on, no optimisation
CLAMPGRAD_SANITIZE=1   with the address and undefined behaviour sanitizers (make sanitize)
CLAMPGRAD_UNITY=0      compile each file by itself (buildtools/unity.py)
CLAMPGRAD_CUDA=auto    kernels for CUDA where torch and an nvcc allow it (buildtools/cuda_build.py); 0: never,
                       1: or fail. TORCH_CUDA_ARCH_LIST names the architectures.

Each is 0 or 1, and any other value ends the build (buildtools/switches.py).
"""

import os
import sysconfig
from functools import partial
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

from buildtools.package import Build, Package
from buildtools.switches import is_set, portable
from buildtools.torch_here import cannot_build

ROOT = Path(__file__).resolve().parent


# ---- Flags. buildtools/cmake.py hands them to CMakeLists.txt. ---------------------------------------------

DEBUG, SANITIZED = is_set("CLAMPGRAD_DEBUG"), is_set("CLAMPGRAD_SANITIZE")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZED else []
SYMBOLS = ["-g" if DEBUG else "-g0"]  # Python's own flags say -g
# A file includes the ATen operators that it calls, not all of them.
DEFINES = ["-DAT_PER_OPERATOR_HEADERS"]
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
    "-fno-fast-math",  # what -ffast-math in CXXFLAGS would make of a NaN or a subnormal number is wrong
    "-fno-plt",  # small functions of libtorch are called often: each call spares a cache line
]
# Flags of single files (buildtools/flags_of_files.py). Only at -O3 does GCC unroll and vectorise as the loops need.
LOOPS = {
    "loops_baseline.cpp": [],
    "loops_avx2.cpp": ["-mavx2"],
    "loops_avx512.cpp": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"],
}
FAST = ["-O3"] if "-O2" in OPTIMISATION else []


def flags_of_files(machine: str) -> dict[str, list[str]]:
    """The flags of single files, for the machine that is built for."""
    return {name: [*FAST, *(flags if machine == "x86_64" else [])] for name, flags in LOOPS.items()}


# ---- Sources and the extension, which need torch: metadata do not ------------------------------------


def sources(out: Path, cuda: bool) -> list[Path]:
    """Those of csrc/, and those that are generated in `out` for the torch that is here."""
    from buildtools.unity import together
    from codegen.generate import generate

    kinds = ("*.cpp", "*.cu") if cuda else ("*.cpp",)
    written = sorted(path for kind in kinds for path in (ROOT / "csrc").rglob(kind))
    files = [*written, *generate(ROOT, out, cuda)]
    return together(files, out) if is_set("CLAMPGRAD_UNITY", "1") else files


def folder(torch: str, cuda: str | None) -> str:
    """Where the library for a torch is, under clampgrad/_lib: "torch_2_13", "torch_2_13_cu13"."""
    name = "torch_" + "_".join(torch.split(".")[:2])
    return f"{name}_cu{cuda.split('.')[0]}" if cuda else name


def extension(version: str) -> Extension:
    from buildtools.cuda_build import code, cuda_build, runtime

    cuda, why = cuda_build()  # it sets what the next import reads
    print(f"clampgrad: {'with' if cuda else 'without'} CUDA kernels ({why})", flush=True)

    import torch
    from torch.utils import cpp_extension

    from buildtools.stamp import header
    from buildtools.unity import write

    name = folder(torch.__version__, torch.version.cuda if cuda else None)
    out = ROOT / "build" / "generated" / folder(torch.__version__, None)
    write(out / "python" / "stamp.h", header(version, torch.__version__))
    defines = [*DEFINES, *([f"-DCLAMPGRAD_WITH_CUDA={code()}"] if cuda else [])]
    made = (cpp_extension.CUDAExtension if cuda else cpp_extension.CppExtension)(
        f"clampgrad._lib.{name}._C",
        sources=[os.path.relpath(path, ROOT) for path in sources(out, cuda)],
        include_dirs=[str(p) for p in (out, out / "include", ROOT / "csrc", ROOT / "csrc/compat")],
        extra_compile_args={
            "cxx": [*OPTIMISATION, *SYMBOLS, *FLAGS, *SANITIZERS, *defines],
            "nvcc": [*OPTIMISATION, *defines, "-Xcompiler=-fvisibility=hidden"],
        },
        extra_link_args=SANITIZERS,
    )
    if cuda:  # by the name of its file, which need not be libcudart.so
        file = ":" + os.path.basename(runtime(os.environ["CUDA_HOME"]))
        made.libraries = [file if name == "cudart" else name for name in made.libraries]
    return made


class BuildExt(build_ext):
    """Gives way to torch's BuildExtension when it runs, which is when torch is imported."""

    def run(self) -> None:
        from buildtools.flags_of_files import build_extension
        from buildtools.linked import refuse

        given = self.distribution
        given.ext_modules = [extension(given.get_version())]
        machine = sysconfig.get_platform().rpartition("-")[2]
        from torch.utils.cpp_extension import TORCH_LIB_PATH

        check = partial(refuse, torch=TORCH_LIB_PATH)
        given.cmdclass["build_ext"] = build_extension(flags_of_files(machine), check)
        del given.command_obj["build_ext"]
        command = given.get_command_obj("build_ext")
        command.editable_mode = self.editable_mode
        command.ensure_finalized()
        command.run()


commands = {"build": Build, "build_py": Package, "build_ext": BuildExt}
if __name__ == "__main__":
    # setuptools must know that there is an extension; BuildExt fills it in.
    later = [] if portable() or cannot_build() else [Extension("clampgrad._C", sources=[])]
    setup(ext_modules=later, cmdclass=commands)
