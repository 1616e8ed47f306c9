"""Values at which formulas differ: the bounds, kinks, ties and limits of most operators."""

import math

import torch

INF, NAN = math.inf, math.nan
FINITE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, -6.0, 2.0, -2.0, 20.0, 1e-3]
EXTREMES = FINITE[:11] + [INF, -INF, NAN, 1e-40, -1e-40]
GRID = EXTREMES + [-20.0, 0.25, 1e30, -1e30]

# What replaces the floating-point tensors of a sample. A longer list for float32 only, for time.
EACH_DTYPE = ["sample", "finite", "extremes", "ties", "ones", "halves"]
FILLS = {
    "float32": [*EACH_DTYPE, "zeros", "positive", "nan", "row", "huge"],
    "float64": EACH_DTYPE,
    "bfloat16": EACH_DTYPE,
}


def make_ramp(*shape, scale=1 / 8):
    """Values from -11 / 8 to 11 / 8 without structure, exact in 16 bits, many of them twice."""
    ramp = (torch.arange(math.prod(shape), dtype=torch.float64) * 37) % 23 - 11
    return (ramp * scale).reshape(shape)


def make_cotangent(like, salt=0):
    """Gradients or tangents to start from: not 0, exact in 16 bits, of both signs."""
    i = torch.arange(like.numel(), dtype=torch.float64)
    values = ((i * 7 + salt * 3) % 11 + 1) / 8
    values[(i + salt) % 3 == 0] *= -1
    return values.reshape(like.shape).to(like.dtype)


def make_pairs(dtype):
    """Every pair of GRID, as two tensors."""
    grid = torch.tensor(GRID, dtype=torch.float64).to(dtype)
    return grid.repeat_interleave(len(grid)), grid.repeat(len(grid))


def cycle(values, like, offset):
    """`values` over and over; each turn starts one later, so that columns differ."""
    i = torch.arange(like.numel())
    values = torch.tensor(values, dtype=torch.float64)
    turn = i // len(values)
    return values[(i + offset * (1 + turn)) % len(values)].reshape(like.shape).to(like.dtype)


def is_filled(leaf):
    return (
        isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.layout == torch.strided
    )


def fill_leaves(leaves, fill):
    """Copies of the leaves, with their floating-point tensors replaced."""
    places = {i: n for n, i in enumerate(i for i, leaf in enumerate(leaves) if is_filled(leaf))}
    copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return [
        fill_tensor(leaf, fill, places[i]) if i in places else leaf for i, leaf in enumerate(copies)
    ]


def fill_tensor(t, fill, place):
    match fill:
        case "finite":
            return cycle(FINITE, t, 3 * place)
        case "extremes":
            return cycle(EXTREMES, t, 3 * place)
        case "ties":
            return cycle([0.0, 1.0, 1.0, -1.0, 2.0], t, 0)
        case "positive":
            return cycle([0.0, 0.25, 1.0, 0.5, 0.0, 1.0], t, place)
        case "ones":
            return torch.ones_like(t)
        case "zeros":
            return torch.zeros_like(t)
        case "halves":
            return ((t.double() * 2).round() / 2).to(t.dtype)
        case "huge":
            return t * 1e20
        case "nan" if t.numel() and place == 0:
            t = t.contiguous()
            t.view(-1)[t.numel() // 2] = NAN
        case "row" if t.numel() and place == 0:
            t = t.contiguous()
            (t[0] if t.dim() > 1 else t.view(-1)[:1]).fill_(-INF)
    return t
