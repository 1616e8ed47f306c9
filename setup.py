"""Build of the package. Metadata is in pyproject.toml; the extension is in tools/extension.py.

CLAMPGRAD_PORTABLE=1   no extension: the wheel is for every Python, torch and platform
CLAMPGRAD_REQUIRE_COMPILED=1  without a compiler fail, instead of building that
CLAMPGRAD_DEBUG=1      assertions on, no optimisation
CLAMPGRAD_SANITIZE=1   with the address and undefined behaviour sanitizers (make sanitize)
CLAMPGRAD_UNITY=0      compile each file by itself (tools/sources.py)
CLAMPGRAD_CUDA=auto    kernels for CUDA where torch and nvcc allow it (tools/cuda_build.py); 0: never,
                       1: or fail. TORCH_CUDA_ARCH_LIST names the architectures.

Each is 0 or 1, and any other value ends the build (tools/switches.py).
"""

import json
import shutil
import sys
from pathlib import Path

import setuptools

OLDEST = 77  # as pyproject.toml says: it reads project.license, which is a string there
if int(setuptools.__version__.split(".")[0]) < OLDEST:
    raise SystemExit(
        f"clampgrad is built with setuptools {OLDEST} or later, and here is {setuptools.__version__}: "
        f"pip install -U 'setuptools>={OLDEST}'"
    )

import yaml  # noqa: E402
from setuptools import setup  # noqa: E402
from setuptools.command.build import build  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT))

from tools.extension import cannot_build, extension  # noqa: E402
from tools.stamp import sources  # noqa: E402
from tools.switches import is_set, portable  # noqa: E402

PORTABLE = portable()
# Why there is no library, where one was wanted. The package repeats it when it is imported.
MISSING = None if PORTABLE else cannot_build()


def is_public(schema: str) -> bool:
    return not schema.startswith("_") and "_backward(" not in schema


def types_of_names(table: dict) -> str:
    """For type checkers: the names and aliases, and those of the exact conventions, which are what
    maximum and its relatives take."""
    canonical = {name: name for name in table["conventions"]} | table["aliases"]
    pseudo = table["pseudo_gradients"]["rows"][0]
    exact = ", ".join(repr(n) for n, of in canonical.items() if of not in pseudo)
    every = ", ".join(map(repr, canonical))
    return f"""from typing import Literal, TypeAlias

ExactGradient: TypeAlias = Literal[{exact}]
Gradient: TypeAlias = Literal[{every}]
"""


class FromNothing(build):
    """setuptools packs all that is in its folder, also what an earlier build has left there."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib, "clampgrad"), ignore_errors=True)
        super().run()


class Package(build_py):
    """Puts into the package what stands elsewhere in the sources.

    The contract and the schemas, in a form that needs no PyYAML; and the patch files, in folders as
    in the sources, with the contract and its reader, which they are checked by.
    """

    def run(self) -> None:
        if MISSING and is_set("CLAMPGRAD_REQUIRE_COMPILED"):
            raise SystemExit(f"CLAMPGRAD_REQUIRE_COMPILED=1, but {MISSING}")
        if MISSING:
            line = "!" * 80
            print(f"{line}\nclampgrad: NO COMPILED LIBRARY: {MISSING}\n{line}", file=sys.stderr)
        super().run()
        package = Path("python" if self.editable_mode else self.build_lib, "clampgrad")
        facts = {
            "VERSION": self.distribution.get_version(),
            "SOURCES": sources(),
            "MISSING": MISSING,
        }
        text = "".join(f"{name} = {value!r}\n" for name, value in facts.items())
        (package / "_build.py").write_text(text)
        table = yaml.safe_load((ROOT / "conventions.yaml").read_text())
        (package / "_table.json").write_text(json.dumps(table))
        (package / "_gradients.py").write_text(types_of_names(table))
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


commands = {"build": FromNothing, "build_py": Package}
if PORTABLE or MISSING:
    setup(cmdclass=commands)
else:
    library, Build = extension()
    setup(ext_modules=[library], cmdclass={**commands, "build_ext": Build})
