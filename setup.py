"""Build of the extension. Metadata is in pyproject.toml.

CLAMPGRAD_DEBUG=1      assertions on, no optimisation
CLAMPGRAD_SANITIZE=1   with the address and undefined behaviour sanitizers (make sanitize)
CLAMPGRAD_CUDA=auto    kernels for CUDA where torch and nvcc allow it (tools/cuda_build.py); 0: never,
                       1: or fail. TORCH_CUDA_ARCH_LIST names the architectures.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT))

from tools.cuda_build import cuda_build  # noqa: E402

CUDA, WHY = cuda_build()  # sets what the next import reads

import torch  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

from tools import sources  # noqa: E402

TORCH = torch.__version__.split("+")[0]
# A build is good for one release of torch, which its version names.
LOCAL = f"+torch{TORCH}"
DEBUG = os.environ.get("CLAMPGRAD_DEBUG") == "1"
OPTIMISATION = ["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-O2", "-DNDEBUG"]
# A file includes the ATen operators that it calls, not all of them: it compiles sooner.
DEFINES = ["-DAT_PER_OPERATOR_HEADERS", *(["-DCLAMPGRAD_WITH_CUDA"] if CUDA else [])]
SANITIZE = os.environ.get("CLAMPGRAD_SANITIZE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZE else []
CLANG = "clang" in subprocess.check_output(
    [*cpp_extension.get_cxx_compiler().split(), "--version"], text=True
)
GCC_ALONE = [
    # at::parallel_for. The OpenMP runtime is the one that libtorch brings, which is GCC's: code of
    # another compiler would bring a second one, so there a kernel runs in the thread that calls it.
    "-fopenmp",
    # In torch's headers, wrongly.
    "-Wno-maybe-uninitialized",
]


def relative(paths: list[Path]) -> list[str]:
    return [os.path.relpath(p, ROOT) for p in paths]


class Build(cpp_extension.BuildExtension):
    """Generates code before it compiles; which files there are is known only then."""

    def build_extensions(self) -> None:
        print(f"clampgrad: {'with' if CUDA else 'without'} CUDA kernels ({WHY})", flush=True)
        out = ROOT / "build" / "generated"
        (extension,) = self.extensions
        extension.sources += relative(sources.generated(out, CUDA))
        extension.include_dirs += [str(out), str(ROOT / "csrc")]
        super().build_extensions()

    def run(self) -> None:
        super().run()
        (extension,) = self.extensions
        library = Path(self.get_ext_fullpath(extension.name))  # an editable one is in the sources
        library.with_name("_built_for.py").write_text(f'TORCH = "{TORCH}"\n')


class Metadata(egg_info):
    """The sources are for all releases of torch, so that their version names none."""

    def finalize_options(self) -> None:
        if "sdist" not in self.distribution.commands:
            self.tag_build = LOCAL
        super().finalize_options()


def is_public(schema: str) -> bool:
    return not schema.startswith("_") and "_backward(" not in schema


class Package(build_py):
    """Puts into the package what stands elsewhere in the sources.

    The contract and the schemas, in a form that needs no PyYAML; and the patch files, in folders as in the sources,
    with the contract and its reader, which they are checked by.
    """

    def run(self) -> None:
        super().run()
        package = Path("python" if self.editable_mode else self.build_lib, "clampgrad")
        version = self.distribution.get_version().removesuffix(LOCAL) + LOCAL
        (package / "_version.py").write_text(f'VERSION = "{version}"\n')
        table = yaml.safe_load((ROOT / "conventions.yaml").read_text())
        (package / "_table.json").write_text(json.dumps(table))
        operators = yaml.safe_load((ROOT / "csrc" / "native_functions.yaml").read_text())
        schemas = [o["func"] for o in operators if is_public(o["func"])]
        (package / "_schemas.json").write_text(json.dumps(schemas))
        if self.editable_mode:
            return  # the patch files are found in the sources
        files = package / "patches" / "files"
        shutil.rmtree(files, ignore_errors=True)
        shutil.copytree(ROOT / "patches", files / "patches")
        (files / "test").mkdir()
        for name in ("conventions.yaml", "test/oracle.py"):
            shutil.copyfile(ROOT / name, files / name)


setup(
    ext_modules=[
        (cpp_extension.CUDAExtension if CUDA else cpp_extension.CppExtension)(
            "clampgrad._C",
            sources=relative(sources.written(CUDA)),
            extra_link_args=SANITIZERS,
            extra_compile_args={
                "cxx": [
                    *OPTIMISATION,
                    *([] if DEBUG else ["-g0"]),
                    *SANITIZERS,
                    *DEFINES,
                    "-Wall",
                    "-Wextra",
                    # What torch's headers and torchgen's output are full of.
                    "-Wno-unused-parameter",
                    "-Wno-missing-field-initializers",
                    # Hidden symbols: what libtorch and another extension export must not be
                    # interposed.
                    "-fvisibility=hidden",
                    *([] if CLANG else GCC_ALONE),
                ],
                "nvcc": [*OPTIMISATION, *DEFINES, "-Xcompiler=-fvisibility=hidden"],
            },
        )
    ],
    cmdclass={"build_ext": Build, "build_py": Package, "egg_info": Metadata},
)
