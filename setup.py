"""Build of the extension. Metadata is in pyproject.toml.

CLAMPGRAD_DEBUG=1   assertions on, no optimisation
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT))

from codegen.generate import generate  # noqa: E402

DEBUG = os.environ.get("CLAMPGRAD_DEBUG") == "1"


class Build(BuildExtension):
    """Generates code before it compiles; which files there are is known only then."""

    def build_extensions(self) -> None:
        out = ROOT / "build" / "generated"
        (extension,) = self.extensions
        extension.sources += [os.path.relpath(p, ROOT) for p in generate(ROOT, out)]
        extension.include_dirs += [str(out), str(ROOT / "csrc")]
        super().build_extensions()


class Package(build_py):
    """Puts the patch files, and the table they are checked against, into the package."""

    def run(self) -> None:
        super().run()
        files = Path(self.build_lib, "clampgrad", "patches", "files")
        shutil.rmtree(files, ignore_errors=True)
        shutil.copytree(ROOT / "patches", files / "patches")
        for name in ("conventions.yaml", "oracle.py"):
            shutil.copyfile(ROOT / "test" / name, files / name)


setup(
    ext_modules=[
        CppExtension(
            "clampgrad._C",
            sources=sorted(os.path.relpath(p, ROOT) for p in (ROOT / "csrc").rglob("*.cpp")),
            extra_compile_args=[
                *(["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0", "-DNDEBUG"]),
                "-Wall",
                "-Wextra",
                # What torch's headers and torchgen's output are full of.
                "-Wno-unused-parameter",
                "-Wno-missing-field-initializers",
                "-Wno-maybe-uninitialized",
                # Hidden symbols: what libtorch and another extension export must not be interposed.
                "-fvisibility=hidden",
                # at::parallel_for; the OpenMP runtime is the one that libtorch brings.
                "-fopenmp",
            ],
        )
    ],
    cmdclass={"build_ext": Build, "build_py": Package},
)
