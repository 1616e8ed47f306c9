"""Whether the file of a library is complete.

The loader maps the segments that the header lists. Reading one that lies beyond the end of the file kills the
process, so this is asked before a library is loaded.
"""

import os
from struct import calcsize, iter_unpack, unpack

HEADER = "=16x2xHI3QI6H"  # of a file: Elf64_Ehdr
SEGMENT = "=2I6Q"  # Elf64_Phdr


def is_cut_off(path: str) -> bool:
    """Whether a segment ends beyond the file. This reads only 64-bit ELF, and does not notice damage inside."""
    with open(path, "rb") as file:
        header = file.read(calcsize(HEADER))
        if header[:5] != b"\x7fELF\x02" or len(header) < calcsize(HEADER):
            return False  # the loader says what is wrong
        _, _, _, table, _, _, _, size, count, *_ = unpack(HEADER, header)
        file.seek(table)
        segments = file.read(size * count)
        if size != calcsize(SEGMENT) or len(segments) < size * count:
            return True
        end = os.fstat(file.fileno()).st_size
    return any(
        offset + length > end for _, _, offset, _, _, length, *_ in iter_unpack(SEGMENT, segments)
    )
