"""Refuses a library that would load and then break, whatever compiler and flags the machine has
set. It reads what the linker wrote, because only that shows what they came to.

    python -m buildtools.linked LIBRARY TORCH

Prints one sentence, with exit code 1, if so. TORCH is the folder of libtorch.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
import sys
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path

from buildtools.torch_here import compiler

CXX_RUNTIME = r"lib(stdc\+\+|gcc_s|c\+\+|c\+\+abi|unwind)\.so"
OPENMP_RUNTIME = r"lib(gomp|i?omp)[^.]*\.so"
SECTIONS = (".dynamic", ".dynsym", ".dynstr", ".comment")
ELF = b"\x7fELF\x02\x01"  # of 64 bits, the lowest byte first; other platforms have other files
NEEDED = 1  # the tag of a library's name in .dynamic


class Elf:
    """What a library says of itself."""

    def __init__(self, path: Path):
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            (start,) = struct.unpack_from("<Q", data, 0x28)
            size, count, names = struct.unpack_from("<3H", data, 0x3A)
            headers = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
            where = headers[names][4]
            self.sections = {name: b"" for name in SECTIONS}
            for name, _, _, _, offset, length in headers:
                end = data.find(b"\0", where + name)
                if (text := data[where + name : end].decode()) in self.sections:
                    self.sections[text] = data[offset : offset + length]

    def string(self, at: int) -> str:
        strings = self.sections[".dynstr"]
        return strings[at : strings.index(b"\0", at)].decode()

    @cached_property
    def needed(self) -> set[str]:
        """The libraries that are loaded with this one."""
        entries = struct.iter_unpack("<QQ", self.sections[".dynamic"])
        return {self.string(value) for tag, value in entries if tag == NEEDED}

    @cached_property
    def symbols(self) -> set[str]:
        """What it takes from others, and what others may take from it."""
        entries = struct.iter_unpack("<IIQQ", self.sections[".dynsym"])
        return {self.string(at) for at, *_ in entries}

    def of(self, kind: str) -> set[str]:
        """The needed libraries of a kind."""
        return {name for name in self.needed if re.match(kind, name)}

    @property
    def signed(self) -> str:
        """The compilers, as each signs what it compiles."""
        comments = self.sections[".comment"].decode(errors="replace").split("\0")
        return " and ".join(dict.fromkeys(filter(None, comments)))


def fault(library: Elf, torch: Elf) -> str | None:
    """What would break beside this libtorch, and what to do; None if nothing is known to."""
    if "__gnu_lto_slim" in library.symbols:
        return (
            "It is empty: the files were compiled with -flto, and the linker could not read them. Take -flto out of "
            "CFLAGS and CXXFLAGS, or add -ffat-lto-objects"
        )
    if missing := torch.of(CXX_RUNTIME) - library.of(CXX_RUNTIME):
        return (
            "An error in backward can end the process: it has a C++ runtime of its own, where libtorch needs "
            f"{' and '.join(sorted(missing))}. Take -static-libstdc++, -static-libgcc and -stdlib out of CXX, CXXFLAGS and "
            "LDFLAGS or, if the compiler itself was built so, name another: CXX=/usr/bin/g++"
        )
    if second := library.of(OPENMP_RUNTIME) - torch.of(OPENMP_RUNTIME):
        return (
            f"The process would have two OpenMP runtimes: it needs {' and '.join(sorted(second))}, which libtorch does "
            "not. Take -fopenmp out of CXX, CXXFLAGS and LDFLAGS: the kernels run in libtorch's threads"
        )
    abi = int(not of_old_strings(torch))
    if of_old_strings(library) == abi:
        return (
            "No symbol with a std::string would be found: it was compiled for another one than libtorch. Take "
            f"-D_GLIBCXX_USE_CXX11_ABI={1 - abi} out of CXX, CFLAGS and CXXFLAGS; libtorch has {abi}"
        )
    return None


def of_old_strings(library: Elf) -> bool:
    """Whether it was compiled with _GLIBCXX_USE_CXX11_ABI=0: "RKSs" is how such a
    std::string const& is mangled."""
    return any("RKSs" in name for name in library.symbols)


def refuse(library: str, torch: str) -> None:
    """Ends the build, without the library, if that would break beside the
    libtorch in the folder `torch`."""
    with open(library, "rb") as file:
        if file.read(6) != ELF:
            return
    linked = Elf(Path(library))
    if found := fault(linked, Elf(Path(torch, "libtorch_cpu.so"))):
        variables = {name: os.environ.get(name) for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")}
        given = [f"{name}={value}" for name, value in variables.items() if value]
        by = " ".join([shlex.join(compiler()), f"({linked.signed or 'unsigned'})", *given])
        Path(library).unlink()  # so that nothing loads it
        raise SystemExit(f"clampgrad: {library} is refused. It was built by {by}. {found}")


if __name__ == "__main__":
    refuse(*sys.argv[1:])
