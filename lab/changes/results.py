"""What a case gives: values, gradients, tangents, as text that tells them apart to the bit."""

import base64
import zlib

import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils._pytree import tree_leaves

from lab.changes.fills import make_cotangent


def evaluate(function, leaves, differentiated, second=False, tangents=True):
    """Calls the function and differentiates it. `differentiated` says of which leaves."""
    parts = {}
    try:
        xs = copy_leaves(leaves, differentiated)
        outputs = call_seeded(function, xs)
        parts["value"] = [encode(y) for y in outputs]
    except Exception as error:
        return {"value": describe(error)}
    xs = [x for x, is_differentiated in zip(xs, differentiated) if is_differentiated]
    ys = [y for y in outputs if isinstance(y, torch.Tensor) and y.requires_grad]
    parts["recorded"] = [isinstance(y, torch.Tensor) and y.requires_grad for y in outputs]
    if xs and ys:
        parts |= differentiate(ys, xs, second)
    if xs and tangents:
        parts["tangent"] = find_tangents(function, leaves, differentiated)
    return parts


def differentiate(ys, xs, second):
    parts = {}
    try:
        cotangents = [make_cotangent(y, i) for i, y in enumerate(ys)]
        if second:  # also without create_graph, as a training step does: some kernels are others
            gs = torch.autograd.grad(ys, xs, cotangents, retain_graph=True, allow_unused=True)
            parts["gradient"] = [encode(g) for g in gs]
        gs = torch.autograd.grad(ys, xs, cotangents, create_graph=second, allow_unused=True)
        parts["gradient with graph" if second else "gradient"] = [encode(g) for g in gs]
    except Exception as error:
        return parts | {"gradient": describe(error)}
    gs = [g for g in gs if g is not None and g.requires_grad]
    if second and gs:
        try:
            cotangents = [make_cotangent(g, 5 + i) for i, g in enumerate(gs)]
            hs = torch.autograd.grad(gs, xs, cotangents, allow_unused=True)
            parts["second gradient"] = [encode(h) for h in hs]
        except Exception as error:
            parts["second gradient"] = describe(error)
    return parts


def find_tangents(function, leaves, differentiated):
    try:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(x, make_cotangent(x, 2 + i)) if is_differentiated else x
                for i, (x, is_differentiated) in enumerate(zip(copy_leaves(leaves), differentiated))
            ]
            return [
                encode(forward_ad.unpack_dual(y).tangent) if isinstance(y, torch.Tensor) else None
                for y in call_seeded(function, duals)
            ]
    except Exception as error:
        return describe(error)


def copy_leaves(leaves, differentiated=None):
    flags = differentiated or [False] * len(leaves)
    return [
        x.clone().requires_grad_(flag) if isinstance(x, torch.Tensor) else x
        for x, flag in zip(leaves, flags)
    ]


def call_seeded(function, leaves):
    torch.manual_seed(0)
    return tree_leaves(function(*leaves))


def describe(error):
    return f"error: {type(error).__name__}: " + str(error).strip().partition("\n")[0][:150]


# ---- As text -------------------------------------------------------------------------------------


def encode(value):
    """[dtype, shape, bytes] of a tensor, ["python", text] of anything else."""
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        return ["python", repr(value)]
    dtype, t = str(value.dtype).removeprefix("torch."), value.detach()
    if t._is_zerotensor():  # without memory
        t = torch.zeros(t.shape, dtype=t.dtype)
    if t.layout != torch.strided:
        t = t.to_dense()
    t = t.resolve_conj().resolve_neg().contiguous()
    if dtype in ("bfloat16", "float16"):
        t = t.float()
    packed = zlib.compress(t.numpy().tobytes(), 1)
    return [dtype, list(t.shape), base64.b64encode(packed).decode()]
