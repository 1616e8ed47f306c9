"""clampgrad in plain PyTorch, without a rule of its own: it executes the contract table.

    contract     how the arguments of an element compare, as a number below 64; and what the table
                 says of the gradient there
    gate         the autograd function: records that number, and selects the gradient by it
    composed     instead of that function, torch.where, if bounds are numbers that give x all of the
                 gradient or nothing

These are the contract, executed: read them first. The rest makes them what people call.

    forward      torch's own operators
    front_doors  what people call: checks, types, in place, `out`
    operators    the same as `torch.ops.clampgrad`; importing it registers them
    pin_state    the active pin, of a thread or of the process
    kernels      the kernels of the pin, over torch's own, and their nodes

It runs on every device and, because it is made of torch's own operators, on releases of torch that
nothing was compiled for. What it costs is speed, and memory: a byte per element in place of a bit.
"""

from clampgrad._implementation.portable.front_doors import FUNCTIONS, PUBLIC  # noqa: F401
from clampgrad._implementation.portable.kernels import *  # noqa: F403
from clampgrad._implementation.portable.pin_state import *  # noqa: F403

globals().update(FUNCTIONS)
