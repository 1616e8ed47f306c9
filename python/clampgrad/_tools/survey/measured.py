"""Measures the installed torch at kinks and ties, beside what PyTorch documents.

Nothing here knows what a function should give. Its gradients around the point are sampled, their
hull is its subdifferential there, whether it is convex is tried, and PyTorch's numbered rules (its
"Gradients for non-differentiable functions", notes on autograd) say which element to expect.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clampgrad._pin.pin import pin
from clampgrad._tools.survey.rows import Row, Survey, Vector, text
from clampgrad._torch.quiet import quietly

X = ("x",)
C = ("x", "c")
XY = ("x", "y")

# A function, its arguments, and the points to look at: one value per argument, a list for a vector.
# `c` is a constant, everything else is differentiated.
CASES: list[tuple[str, Sequence[str], list[Any]]] = [
    ("torch.clamp(x, 0, 6)", X, [0, 6]),
    ("torch.clamp(x, 1, 1)", X, [1]),
    ("torch.clamp(x, 2, 1)", X, [1]),
    ("torch.clamp_min(x, 0)", X, [0]),
    ("torch.clamp_max(x, 6)", X, [6]),
    ("torch.clamp(x, min=c)", C, [(0, 0)]),
    ("torch.clamp(x, min=lo)", ("x", "lo"), [(0, 0)]),
    ("torch.clamp(x, lo, hi)", ("x", "lo", "hi"), [(0, 0, 6), (6, 0, 6), (1, 1, 1), (0, 1, 1)]),
    ("torch.maximum(x, c)", C, [(0, 0)]),
    ("torch.maximum(x, y)", XY, [(1, 1)]),
    ("torch.max(x, y)", XY, [(1, 1)]),
    ("torch.minimum(x, y)", XY, [(1, 1)]),
    ("torch.fmax(x, c)", C, [(0, 0)]),
    ("torch.fmax(x, y)", XY, [(1, 1)]),
    ("torch.fmin(x, y)", XY, [(1, 1)]),
    ("torch.amax(x, 0)", X, [[1, 1]]),
    ("torch.amin(x, 0)", X, [[1, 1]]),
    ("torch.max(x)", X, [[1, 1]]),
    ("torch.max(x, 0)[0]", X, [[1, 1]]),
    ("torch.quantile(x, 0.0)", X, [[1, 1, 1, 1]]),
    ("F.relu(x)", X, [0]),
    ("F.relu6(x)", X, [0, 6]),
    ("F.hardtanh(x, -1.0, 1.0)", X, [-1, 1]),
    ("F.hardsigmoid(x)", X, [-3, 3]),
    ("F.hardswish(x)", X, [-3, 3]),
    ("F.hardshrink(x, 0.5)", X, [-0.5, 0.5]),
    ("F.softshrink(x, 0.5)", X, [-0.5, 0.5]),
    ("F.threshold(x, 0.0, 0.0)", X, [0]),
    ("F.leaky_relu(x, 0.01)", X, [0]),
    ("torch.abs(x)", X, [0]),
    # Losses at their margins: the clamp is in C++.
    ("F.margin_ranking_loss(x, c, c + 1, 1.0, reduction='none')", C, [(1, 0)]),
    ("F.hinge_embedding_loss(x, c - 1, reduction='none')", C, [(1, 0)]),
]

# Odd, and longer than a vector register: a kernel's vector body and its tail may disagree.
WIDTH = 67


def survey(device: str = "cpu") -> Survey:
    """Measures the gradients of the installed torch at kinks and ties, also under a pin.

    The rules are those of PyTorch's notes on autograd, "Gradients for
    non-differentiable functions".

    Args:
        device: the device to measure on.

    Returns:
        A :class:`clampgrad.Survey`, as ``clampgrad survey`` prints: a
        :class:`clampgrad.Row` per function and point.

    Raises:
        RuntimeError: torch has no such device.
    """
    torchs_own = pin(None) if pin.current() else nullcontext()
    everywhere = torch.inference_mode(False), torch.enable_grad(), torch.device(device), quietly()
    with ExitStack() as stack:
        for block in (torchs_own, *everywhere):
            stack.enter_context(block)
        cases = [(f, names, point) for f, names, points in CASES for point in points]
        return Survey(_row(*case) for case in cases)


# ---- One row -------------------------------------------------------------------------------------


def _row(expression: str, names: Sequence[str], point: Any) -> Row:
    reduces = isinstance(point, list)
    values = [point] if reduces or not isinstance(point, tuple) else list(point)
    free = [name != "c" for name in names]

    def call(*arguments: Tensor) -> Tensor:
        return eval(expression, {"torch": torch, "F": F}, dict(zip(names, arguments)))

    def at(first: Any = None) -> list[Vector]:
        here = [values[0] if first is None else first, *values[1:]]
        arguments = [
            torch.tensor(v, dtype=torch.float32) if reduces else torch.full((WIDTH,), float(v))
            for v in here
        ]
        return _unique(_gradients(call, arguments, free, reduces))

    limits, rule = _around(call, values, free, reduces)
    # Rules 1 to 3 in one: a smooth point has one limit.
    expected = None if rule == 4 else least(limits)
    measured = at()
    return Row(
        function=expression,
        at=", ".join(f"{n} = {text(v)}" for n, v in zip(names, values)),
        limits=limits,
        rule=rule,
        expected=expected,
        measured=measured,
        verdict=verdict(measured, expected, limits),
        nan=at([torch.nan, *point[1:]] if reduces else torch.nan),
    )


def _gradients(
    function: Callable[..., Tensor], arguments: Sequence[Tensor], free: list[bool], reduces: bool
) -> Tensor:
    """Returns one row per element of the result: its gradient, argument by argument."""
    arguments = [a.clone().requires_grad_(r) for a, r in zip(arguments, free)]
    wanted = [a for a, r in zip(arguments, free) if r]
    gradients = torch.autograd.grad(function(*arguments).sum(), wanted)
    return gradients[0][None] if reduces else torch.stack(gradients, 1)


def _unique(rows: Tensor) -> list[Vector]:
    # + 0.0 turns -0.0 into 0.0; NaN is unlike itself, so that text decides.
    return list({str(r): tuple(r) for r in (rows + 0.0).tolist()}.values())


def _around(
    call: Callable[..., Tensor], values: list[Any], free: list[bool], reduces: bool
) -> tuple[list[Vector], int]:
    """Returns the limits of the gradient around a point, and the rule that applies there."""
    generator = torch.Generator().manual_seed(0)
    step = 2.0**-16

    def near(count: int) -> list[Tensor]:
        points = []
        for value, is_free in zip(values, free):
            base = torch.tensor(value, dtype=torch.float64)
            noise = torch.rand(count, *base.shape, generator=generator, device="cpu") - 0.5
            points.append(base + noise.to(base) * step * is_free)
        return points

    def evaluate(points: list[Tensor]) -> Tensor:
        return torch.stack([call(*p) for p in zip(*points)]) if reduces else call(*points)

    samples = near(128)
    if reduces:
        rows = torch.cat([_gradients(call, p, free, True) for p in zip(*samples)])
    else:
        rows = _gradients(call, samples, free, False)
    limits = sorted(_unique(rows.mul(1000).round().div(1000)))

    others = near(128)
    middle = evaluate([(a + b) / 2 for a, b in zip(samples, others)])
    bend = (evaluate(samples) + evaluate(others)) / 2 - middle
    # A kink bends by about a step, a smooth curve by its square.
    convex, concave = (bend > -step / 1000).all().item(), (bend < step / 1000).all().item()
    rule = 1 if convex and concave else 2 if convex else 3 if concave else 4
    return limits, rule


# ---- The subdifferential: the hull of the limits -------------------------------------------------


def least(vertices: Sequence[Vector]) -> Vector:
    """Returns the point of least norm in the convex hull of a few points, face by face."""
    points = torch.tensor(vertices, dtype=torch.float64, device="cpu")
    best: Tensor | None = None
    for size in range(1, min(len(points), points.shape[1] + 1) + 1):
        for chosen in combinations(range(len(points)), size):
            face = points[list(chosen)]
            edges = (face[1:] - face[0]).T
            weights = torch.linalg.pinv(edges) @ -face[0] if size > 1 else face.new_zeros(0)
            if (weights < -1e-9).any() or weights.sum() > 1 + 1e-9:
                continue  # the nearest point of the plane is outside the face
            nearest = face[0] + edges @ weights
            if best is None or nearest.norm() < best.norm() - 1e-12:
                best = nearest
    assert best is not None  # a vertex is a face
    return tuple(round(v, 6) + 0.0 for v in best.tolist())


def inside(point: Vector, vertices: Sequence[Vector]) -> bool:
    if any(v != v for v in point):
        return False
    shifted = [tuple(a - b for a, b in zip(v, point)) for v in vertices]
    return max(map(abs, least(shifted))) < 1e-3


def same(a: Sequence[Vector], b: Sequence[Vector]) -> bool:
    return len(a) == len(b) and all(
        abs(p - q) < 1e-3 for u, v in zip(sorted(a), sorted(b)) for p, q in zip(u, v)
    )


def verdict(measured: list[Vector], expected: Vector | None, limits: list[Vector]) -> str:
    if not all(inside(m, limits) for m in measured):
        return "no subgradient"
    if expected is None:
        return "a free choice"
    return "as documented" if same(measured, [expected]) else "not of least norm"
