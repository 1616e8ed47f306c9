"""The portable implementation and the compiled one agree to the bit, however they are called.

Both are right at every point of the table: test_table.py.
"""

import pytest
import torch
import torch.autograd.forward_ad as fwad
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clampgrad import _implementation
from clampgrad._implementation import portable as portable_implementation
from common import assert_same
from matrix.draw import draw
from matrix.forms import FORMS, keywords

pytestmark = pytest.mark.compiled("it compares the two")


def strides(x):
    """Those that matter: where there are elements, and another one is reached by it."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1 and x.numel()]


def outcome(implementation, name, args, keywords, g, tangents):
    """What a call gives in every way to differentiate it, or the error; the arguments stay as they are."""
    function = getattr(implementation, name)
    chosen = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]

    def f(*leaves):
        rest = dict(zip(chosen, leaves))
        given = [
            rest.get(i, a.detach() if isinstance(a, torch.Tensor) else a)
            for i, a in enumerate(args)
        ]
        given[0] = given[0].clone() if name.endswith("_") else given[0]
        return function(*given, **keywords)

    leaves = [args[i].detach().clone().requires_grad_() for i in chosen]
    y = f(*leaves)
    yield y.detach()
    yield torch.tensor(strides(y))
    if not chosen or not y.requires_grad:
        return
    incoming = g[: y.numel()].view(y.shape).to(y.dtype)
    yield from torch.autograd.grad(y, leaves, incoming)
    plain = [leaf.detach() for leaf in leaves]
    if not name.endswith("_"):
        yield from torch.func.vjp(f, *plain)[1](incoming)
        stacked = [torch.stack([p, p]) for p in plain]
        pull = torch.func.vmap(lambda g, *ps: torch.func.vjp(f, *ps)[1](g))
        yield from pull(torch.stack([incoming, -incoming]), *stacked)
    if keywords["gradient"] in ("with_grad", "restoring"):
        return
    some = [tangents[: p.numel()].view(p.shape).to(p.dtype) for p in plain]
    with fwad.dual_level():
        yield fwad.unpack_dual(f(*map(fwad.make_dual, plain, some))).tangent
        # One argument has a tangent, and all require grad.
        mixed = [fwad.make_dual(leaves[0], some[0]), *leaves[1:]]
        yield fwad.unpack_dual(f(*mixed)).tangent.detach()
    if not name.endswith("_"):
        yield torch.func.jvp(f, tuple(plain), tuple(some))[1]


VALUES = torch.tensor([-3.0, -0.0, 0.0, 1, 0.3, 7, torch.inf, torch.nan])


def assert_agreement(name, keywords, args, g, tangents):
    found = []
    for implementation in (_implementation, portable_implementation):
        try:
            found.append(list(outcome(implementation, name, args, keywords, g, tangents)))
        except (RuntimeError, TypeError) as error:
            found.append(str(error).splitlines()[0])
    compiled, portable = found
    if isinstance(compiled, str) or isinstance(portable, str):
        assert compiled == portable
        return
    assert len(compiled) == len(portable)
    for ours, theirs in zip(portable, compiled):
        assert_same(ours, theirs, (name, keywords, args))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_any_call(r):
    """In place too; whatever the shapes, dtypes and memory, and whichever of them require grad."""
    cell = draw(r)
    assume(cell)
    laid_out = zip(cell.laid_out(cell.tensors), cell.want)
    args = cell.fill([t.detach().requires_grad_(wanted) for t, wanted in laid_out])
    generator = torch.Generator().manual_seed(r.randrange(1000))
    g, tangents = VALUES[torch.randint(len(VALUES), (2, 5**4), generator=generator)]
    name = cell.operator + "_" * FORMS[cell.form].in_place
    assert_agreement(name, keywords(cell), args, g, tangents)
