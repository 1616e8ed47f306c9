"""The code that docs/howto/without_a_dependency.md offers to copy, run as it stands on the page,
has the gradients of the contract: at every position, and in every context of the matrix."""

import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from testing.matrix.cells import Arg, Cell, expected, inf, nan
from testing.matrix.run import CONTEXTS, calls, failure, waived

PAGE = Path(__file__).parents[2] / "docs/howto/without_a_dependency.md"
TEXT, COPIED = PAGE.read_text(), {}
for block in re.finditer("```python\n(.*?)```", TEXT, flags=re.DOTALL):
    # At its lines of the page, but not as that file, which PyTorch 2.5 would compile as Python.
    above = "\n" * TEXT.count("\n", 0, block.start(1))
    exec(compile(above + block[1], f"<{PAGE.name}>", "exec"), COPIED)


def called(function, cell, **more):
    return lambda *tensors: function(*cell.fill(tensors), **more)


def make_short(cell):
    return called(COPIED[f"clamp_{cell.gradient}"], cell)


def is_short(cell):
    lo, hi = cell.args[1:]
    in_order = lo is not None and hi is not None and lo <= hi
    return in_order and cell.gradient in ("inclusive", "min_norm")


def make_long(cell):
    return called(COPIED["clamp"], cell, gradient=cell.gradient.replace("joint", "min_norm"))


def is_long(cell):
    return cell.gradient in ("inclusive", "min_norm", "joint", "half")


def make_with_grad(cell):
    return called(COPIED["clamp_with_grad"], cell)


def is_with_grad(cell):
    return (cell.gradient, cell.maximize) == ("with_grad", False)


FORMS = {
    "three lines": (make_short, is_short),
    "clamp": (make_long, is_long),
    "clamp_with_grad": (make_with_grad, is_with_grad),
}


def check(form, cells):
    """Checks each cell as test.matrix.run does, with the copied code in place of a form's."""
    for cell in cells:
        expected(cell)
        try:
            CONTEXTS[cell.context].run(FORMS[form][0](cell), cell)
        except Exception as e:
            raise failure(cell, e) from e


VALUES = (-inf, -3e38, -7.0, -1.0, -0.7, -1e-45, -0.0, 0.0, 1e-45, 0.1, 0.5, 1.0, 6.0, inf, nan)
BOUNDS = (None, 0, 6, -0.7, 0.1, 1.0, 2000.0, -0.0, 1e-45, -inf, inf, nan)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("form", FORMS)
def test_every_position(form, dtype):
    gradients = ("inclusive", "min_norm", "joint", "half", "with_grad")
    x = (*VALUES, *(torch.tensor((0.1, -0.7, 2000.0)).to(getattr(torch, dtype)).double().tolist()))
    every = (
        Cell("clamp", (Arg(x, (len(x),), dtype), lo, hi), gradient, seed=seed)
        for gradient in gradients
        for lo in BOUNDS
        for hi in BOUNDS
        for seed in range(3)
        if (lo, hi) != (None, None)
    )
    check(form, filter(FORMS[form][1], every))


CALLS = [c for c in calls() if c.operator == "clamp" and c.numbers]
# The page says so. Of its forward mode the compiler takes torch's own, and vmap fails an assertion.
NOT_OF_FUNCTIONS = ("jvp", "forward", "dual", "functionalize")


def cells_in(form, context):
    """In an order that depends on both."""
    promised = form != "clamp_with_grad" or not any(word in context for word in NOT_OF_FUNCTIONS)
    if promised and not CONTEXTS[context].records_nothing:
        for call in random.Random(f"{form}, {context}").sample(CALLS, len(CALLS)):
            cell = replace(call, context=context)
            # A sum over the branches of `half` makes +0 of a gradient of -0.
            if (context, cell.gradient) == ("signs of zeros", "half"):
                continue
            if FORMS[form][1](cell) and CONTEXTS[context].accepts(cell) and not waived(cell):
                yield cell


EVERYWHERE = [(f, c) for f in FORMS for c in CONTEXTS if any(True for _ in cells_in(f, c))]


@pytest.mark.thorough
@pytest.mark.parametrize("form, context", EVERYWHERE)
def test_every_context(form, context):
    check(form, islice(cells_in(form, context), 2 if CONTEXTS[context].costly else 12))


# ---- What the page says beside its code ----------------------------------------------------------


def test_one_byte_per_element_is_kept():
    x, kept = torch.randn(1000, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes), lambda t: t):
        COPIED["clamp_inclusive"](x, 0, 1)
    assert kept == [1000]


def test_export_drops_the_backward_of_a_function():
    class Model(torch.nn.Module):
        def forward(self, x):
            return COPIED["clamp_with_grad"](x, 0.0, 1.0)

    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    exported = torch.export.export(Model(), (x,)).module()
    g = torch.tensor([-1.0, -1.0, 1.0])
    assert torch.autograd.grad(Model()(x), x, g)[0].equal(g)
    assert torch.autograd.grad(exported(x), x, g)[0].equal(torch.tensor([0.0, -1.0, 0.0]))


def test_a_sum_is_rounded():
    def copied_often(x, lo, hi):
        return x + (x.clamp(lo, hi) - x).detach()

    assert copied_often(torch.tensor(700.0, dtype=torch.bfloat16), -5, 3) == 4
    assert copied_often(torch.tensor(inf), -5, 3).isnan()


def test_a_product_underflows():
    def copied_often(x, g):
        return g * (g * (x - x.clamp(0, 1)) >= 0)

    x = torch.tensor([1.001, 2.0, 0.5], dtype=torch.float16, requires_grad=True)
    g = torch.tensor([-1e-5, -inf, -inf], dtype=torch.float16)  # out of [0, 1], or inside
    passed, *others = copied_often(x, g)
    assert passed == g[0] and all(map(torch.isnan, others))
    y = COPIED["clamp_with_grad"](x, 0, 1)
    assert torch.autograd.grad(y, x, g)[0].tolist() == [0, 0, -inf]
