"""What lab/cuda_check.py counts of a kernel's machine code."""

import pytest

from lab.cuda_check import instructions_per_byte, whole_tile

# A whole tile by two ways, a tile of one row, and a loop that stores element by element.
CODE = """
    S2R R0, SR_TID.X
    @P0 BRA 0x60
    LDG.E.128 R4, desc[UR4][R2.64]
    @P1 BRA 0x40
    STG.E.128 desc[UR4][R2.64], R4
    EXIT
    @P2 BRA 0xc0
    @P3 BRA 0x90
    IADD3 R4, R4, 0x1, RZ
    STG.E.128 desc[UR4][R2.64], R4
    STG.E.128 desc[UR4][R2.64+0x200], R8
    EXIT
    STG.E desc[UR4][R2.64], R4
    @P4 BRA 0xc0
    EXIT
"""


def instructions():
    return [line.strip() for line in CODE.strip().splitlines()]


def test_the_shortest_way_with_the_most_stores():
    code = [(16 * i, text) for i, text in enumerate(instructions())]
    stores = ["STG.E.128 desc[UR4][R2.64], R4", "STG.E.128 desc[UR4][R2.64+0x200], R8"]
    to_them = ["S2R R0, SR_TID.X", "@P0 BRA 0x60", "@P2 BRA 0xc0", "@P3 BRA 0x90"]
    assert whole_tile(code) == [*to_them, *stores, "EXIT"]


@pytest.mark.parametrize(
    "kernel, read",
    [
        ("PairForwardOp_FlatInputs", 0),
        ("PairForwardOp_StridedInputs", 32),
        ("BackwardOp_StridedInputs", 0),
    ],
)
def test_bytes(kernel, read):
    """Two stores, and no load: but beside a broadcast bound, x is read as it is written."""
    name = f"op_kernelIf_{kernel}"
    lines = (f"        /*{16 * i:04x}*/    {text} ;" for i, text in enumerate(instructions()))
    sass = "\n".join([f"Function : {name}", *lines])
    assert instructions_per_byte(sass) == {name: pytest.approx(7 / (32 + read))}
