"""Subdifferentials from the limits of a gradient around a point: membership, and the element of least norm."""

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

import torch
from torch import Tensor

# A gradient of all arguments together.
Vector: TypeAlias = tuple[float, ...]


def least(vertices: Sequence[Vector]) -> Vector:
    """The point of least norm in the convex hull of a few points, searched face by face."""
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
