"""Rejects a library that would load and then break. Reads the linked file, because only it shows
the combined effect of the compiler and the flags that the machine has set.

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
    """What the file of a library says about itself."""

    def __init__(self, path: Path):
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            (start,) = struct.unpack_from("<Q", data, 0x28)
            size, count, names = struct.unpack_from("<3H", data, 0x3A)
            headers = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
            names_offset = headers[names][4]
            self.sections = {name: b"" for name in SECTIONS}
            for name, _, _, _, offset, length in headers:
                end = data.find(b"\0", names_offset + name)
                if (text := data[names_offset + name : end].decode()) in self.sections:
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
        """The symbols that it takes from others, and those that others may take from it."""
        entries = struct.iter_unpack("<IIQQ", self.sections[".dynsym"])
        return {self.string(at) for at, *_ in entries}

    def find_needed(self, pattern: str) -> set[str]:
        """Returns the needed libraries whose names match a pattern."""
        return {name for name in self.needed if re.match(pattern, name)}

    @property
    def compiler_names(self) -> str:
        """The compilers, as each writes its name into what it compiles."""
        comments = self.sections[".comment"].decode(errors="replace").split("\0")
        return " and ".join(dict.fromkeys(filter(None, comments)))


def find_link_fault(library: Elf, torch: Elf) -> str | None:
    """Returns what would break beside this libtorch, and what to do, or None."""
    if "__gnu_lto_slim" in library.symbols:
        return (
            "It is empty: the files were compiled with -flto, and the linker could not read them. Take -flto out of "
            "CFLAGS and CXXFLAGS, or add -ffat-lto-objects"
        )
    if missing := torch.find_needed(CXX_RUNTIME) - library.find_needed(CXX_RUNTIME):
        return (
            "An error in backward can end the process: it has a C++ runtime of its own, where libtorch needs "
            f"{' and '.join(sorted(missing))}. Take -static-libstdc++, -static-libgcc and -stdlib out of CXX, CXXFLAGS and "
            "LDFLAGS or, if the compiler itself was built so, name another: CXX=/usr/bin/g++"
        )
    if second := library.find_needed(OPENMP_RUNTIME) - torch.find_needed(OPENMP_RUNTIME):
        return (
            f"The process would have two OpenMP runtimes: it needs {' and '.join(sorted(second))}, which libtorch does "
            "not. Take -fopenmp out of CXX, CXXFLAGS and LDFLAGS: the kernels run in libtorch's threads"
        )
    abi = int(not uses_old_string_abi(torch))
    if uses_old_string_abi(library) == abi:
        return (
            "No symbol with a std::string would be found: it was compiled for another one than libtorch. Take "
            f"-D_GLIBCXX_USE_CXX11_ABI={1 - abi} out of CXX, CFLAGS and CXXFLAGS; libtorch has {abi}"
        )
    return None


def uses_old_string_abi(library: Elf) -> bool:
    """Whether it was compiled with _GLIBCXX_USE_CXX11_ABI=0: "RKSs" is how such a
    std::string const& is mangled."""
    return any("RKSs" in name for name in library.symbols)


def reject_if_faulty(library: str, torch: str) -> None:
    """Ends the build, without the library, if that would break beside the
    libtorch in the folder `torch`."""
    with open(library, "rb") as file:
        if file.read(6) != ELF:
            return
    linked = Elf(Path(library))
    if fault := find_link_fault(linked, Elf(Path(torch, "libtorch_cpu.so"))):
        variables = {name: os.environ.get(name) for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")}
        flags = [f"{name}={value}" for name, value in variables.items() if value]
        by = " ".join([shlex.join(compiler()), f"({linked.compiler_names or 'unsigned'})", *flags])
        Path(library).unlink()  # so that nothing loads it
        raise SystemExit(f"clampgrad: {library} is refused. It was built by {by}. {fault}")


if __name__ == "__main__":
    reject_if_faulty(*sys.argv[1:])
