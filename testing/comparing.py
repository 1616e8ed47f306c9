"""Arguments full of ties, calls of them, and what comes out compared to the bit."""

import io
import re

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import clampgrad
from oracle import EXACT

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BOUNDS = {"clamp": {"min": 0, "max": 1}, "clamp_min": {"min": 0}, "clamp_max": {"max": 1}}


def seeded(draw, *args, seed=0, generator=None):
    """What a function of torch draws, on the device under test: the same values on every device.

    A generator belongs to one device and draws other numbers on another, so the CPU's
    draws, and the result is moved.
    """
    generator = generator or torch.Generator().manual_seed(seed)
    return draw(*args, generator=generator, device="cpu").to(torch.get_default_device())


def random_with_ties(*shape, dtype=torch.float32, seed=0, nan=True):
    """Random values with many ties at 0 and at 1, infinities, both zeros and, if wanted, NaN."""
    values = [-torch.inf, -1, -0.0, 0.0, 0.5, 1, 1, 2, torch.inf] + [torch.nan] * nan
    index = seeded(torch.randint, len(values), shape, seed=seed)
    return torch.tensor(values, dtype=dtype)[index]


# ---- Calls ---------------------------------------------------------------------------------------

# Every kind of call, of three Tensors of one shape.
CALLS = {
    f"clamp, {convention}": lambda x, lo, hi, c=convention: clampgrad.clamp(x, 0, 1, gradient=c)
    for convention in clampgrad.CONVENTIONS
} | {
    "clamp_": lambda x, lo, hi: clampgrad.clamp_(x + 0, 0, 1),
    "clamp with Tensors": lambda x, lo, hi: clampgrad.clamp(x, lo, hi),
    "clamp beside a number": lambda x, lo, hi: clampgrad.clamp(x, lo, 1, gradient="inclusive"),
    "clamp_mingrad": lambda x, lo, hi: torch.ops.clampgrad.clamp_mingrad(x, 0, 1),
    "maximum": lambda x, lo, hi: clampgrad.maximum(x, lo),
}


def every_kind(x, lo, hi, convention):
    """Every kind of bound, and a pair where the convention has one."""
    y = x * 0
    for bounds in ((0, 1), (lo, hi), (lo, 1)):
        y = y + clampgrad.clamp(x, *bounds, gradient=convention)
    return y + clampgrad.maximum(x, hi, gradient=convention) if convention in EXACT else y


class Dispatched(TorchDispatchMode):
    """Calls `see` with each operator below autograd."""

    def __init__(self, see):
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.see(function)
        return function(*args, **(kwargs or {}))


# ---- What comes out ------------------------------------------------------------------------------


def result_or_error(f, *args, **keywords):
    """What a call returns, or the type and the first line of its error.

    A backend without the operator names it. The compiled functions clamp nested Tensors by clamp,
    also in place of clamp_min.
    """
    try:
        return f(*args, **keywords)
    except Exception as error:
        text = str(error).split("\n")[0]
        if clampgrad.implementation == "compiled":
            text = re.sub(r"aten::clamp\w*", "aten::clamp", text)
        return type(error), text


def eager(f, args, g):
    """The gradient of each argument, zeros where it has none."""
    args = [a.detach().clone().requires_grad_() for a in args]
    gradients = torch.autograd.grad(f(*args), args, g, allow_unused=True)
    return [torch.zeros_like(g) if v is None else v for v in gradients]


def saved_and_loaded(thing, save=torch.save, load=torch.load, **keywords):
    file = io.BytesIO()
    save(thing, file)
    file.seek(0)
    return load(file, **keywords)


def assert_same(actual, expected, message=""):
    """Equal values, NaN equal to NaN, same dtype and shape, of two Tensors or of two sequences of
    Tensors. The message is put into words if it fails."""
    if are_same_plain_tensors(actual, expected):
        return
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{message}\n{m}"
    )


def are_same_plain_tensors(a, b):
    """Whether two plain Tensors are the same, in a tenth of assert_close's
    time. False: ask assert_close."""
    if not (type(a) is type(b) is torch.Tensor) or a.layout != torch.strided or a.is_meta:
        return False
    if (a.dtype, a.shape, a.device, a.layout) != (b.dtype, b.shape, b.device, b.layout):
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def check_rows(compiled, f, args, g):
    """The same gradients as f, of each row of the result by itself."""
    for chosen in torch.eye(len(f(*args)), dtype=torch.bool):
        gs = torch.where(chosen[:, None], g, 0)  # g for one row, 0 for the others
        assert_same(eager(compiled, args, gs), eager(f, args, gs))
