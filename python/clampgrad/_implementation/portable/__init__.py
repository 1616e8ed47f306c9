"""clampgrad in plain PyTorch, without a rule of its own: it executes the contract table.

    contract   how the arguments of an element compare gives a number below 64, and the table says what
               the gradient is there
    gate       the autograd function: that number is recorded, and a select applies what the table says

These two are the contract, executed: read them first. The rest makes them what people call.

    forward    torch's own operators
    functions  what people call: checks, types, in place, `out`
    library    the same as `torch.ops.clampgrad`; importing it registers them
    functionalize  the same under torch.func.functionalize
    pin        the pin, for calls from Python

It runs on every device and, because it is made of torch's own operators, on releases of torch that
nothing was compiled for. What it costs is speed, and memory: a byte per element in place of a bit.
"""

from clampgrad._implementation.portable import functionalize  # noqa: F401
from clampgrad._implementation.portable.functions import FUNCTIONS
from clampgrad._implementation.portable.pin import *  # noqa: F403

globals().update(FUNCTIONS)
