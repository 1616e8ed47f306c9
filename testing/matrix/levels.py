"""Transforms inside of transforms, with constants and variables of every level.

A word such as "vjp vmap jvp" is a nest, outermost first. Each vjp and jvp differentiates a choice
of the arguments of its own, each vmap batches one, and outside of all of them autograd records what
requires grad. The call runs once, in the middle; every level then reports its own gradient of the
result, which must be what the table gives for what *that* level differentiates.
"""

import random
from itertools import product

import torch
from torch.func import jvp, vjp, vmap

from testing.matrix.cells import FINITE, expected, gradients, numbers
from testing.matrix.contexts import (
    check_gradients,
    check_same,
    expected_tangent,
    grad,
    leaves_of,
    linear,
    no_jvp,
    whole_context,
)
from testing.matrix.forms import FORMS, bounds_of

BATCH = 2


def subset(chooser, items, always=()):
    chosen = [i for i in items if i in always or chooser.random() < 0.6]
    return chosen or [chooser.choice(items)]


class Nest:
    """The choices of one cell, and what its levels should report."""

    def __init__(self, word, cell):
        self.word, self.cell = word.split(), cell
        self.tensors = cell.tensors
        count = len(self.tensors)
        floating = [i for i, t in enumerate(self.tensors) if t.is_floating_point()]
        chooser = random.Random(f"{word} {cell.seed} {cell.operator} {cell.gradient}")
        in_place = [0] if FORMS[cell.form].in_place else []
        self.chosen = [
            subset(chooser, range(count), in_place) if t == "vmap" else subset(chooser, floating)
            for t in self.word
        ]
        self.results = []  # what jvp and vjp report: (level, Tensor argument or None, value)

    # ---- What each argument is outside of all levels ----

    def physical(self, i):
        t = self.tensors[i]
        for kind, chosen in reversed(list(zip(self.word, self.chosen))):
            if kind == "vmap" and i in chosen:
                t = torch.stack([t, t.flatten().roll(1).view(t.shape)])
        return t

    def aligned(self, i, result_dim):
        """The tensor with a dimension for every vmap and every dimension
        of the result, to broadcast."""
        t, shape = self.physical(i), list(self.tensors[i].shape)
        batched = [i in c for k, c in zip(self.word, self.chosen) if k == "vmap"]
        lead = [BATCH if b else 1 for b in batched]
        return t.reshape(lead + [1] * (result_dim - len(shape)) + shape)

    # ---- Running ----

    def run(self, f, k, args):
        if k == len(self.word):
            return f(*args), ()
        kind, chosen = self.word[k], self.chosen[k]
        if kind == "vmap":
            axes = tuple(0 if i in chosen else None for i in range(len(args)))
            return vmap(lambda *a: self.run(f, k + 1, a), in_dims=axes)(*args)

        def inner(*variables):
            variables = iter(variables)
            every = [next(variables) if i in chosen else a for i, a in enumerate(args)]
            return self.run(f, k + 1, every)

        variables = tuple(args[i] for i in chosen)
        if kind == "vjp":
            y, pull, inner_results = vjp(inner, *variables, has_aux=True)
            return y, (*inner_results, pull(self.cotangent(k, y.shape, y.dtype)))
        tangents = tuple(self.tangent(k, i, v.shape) for i, v in zip(chosen, variables))
        if FORMS[self.cell.form].in_place:  # batched as the tensor is, or vmap refuses to write
            tangents = tuple(t + torch.zeros_like(v) for t, v in zip(tangents, variables))
        y, tangent, inner_results = jvp(inner, variables, tangents, has_aux=True)
        return y, (*inner_results, tangent)

    def cotangent(self, k, shape, dtype):
        return numbers(self.cell.seed + k, shape, dtype)

    def tangent(self, k, i, shape):
        return numbers(self.cell.seed + 7 * k + i, shape, self.tensors[i].dtype, FINITE)

    # ---- Comparing ----

    def check(self, f):
        cell = self.cell
        leaves = [self.physical(i).requires_grad_(w) for i, w in enumerate(cell.requires_grad)]
        y, level_results = self.run(f, 0, leaves)
        logical = cell.forward(cell.fill(self.tensors))
        every = [self.aligned(i, logical.dim()) for i in range(len(leaves))]
        value = cell.forward(cell.fill(every))
        shape = y.shape
        check_same("value", y, value.reshape(shape))
        levels = [k for k in range(len(self.word)) if self.word[k] != "vmap"]
        for k, results in zip(reversed(levels), level_results):
            self.check_level(k, results, every, value)
        if any(cell.requires_grad):
            g = numbers(cell.seed, value.shape, value.dtype)
            gradients = grad(y, leaves, g.reshape(shape))
            self.check_shares("outside of all levels", cell.requires_grad, g, gradients, every)

    def check_level(self, k, results, every, value):
        cell, chosen = self.cell, self.chosen[k]
        outside = self.word[:k].count("vmap")
        requires_grad = [i in chosen for i in range(len(every))]
        where = f"{self.word[k]} at level {k + 1} of {' '.join(self.word)}"
        if self.word[k] == "vjp":
            g = self.cotangent(k, value.shape[outside:], value.dtype).expand(value.shape)
            return self.check_shares(where, requires_grad, g, results, every, outside)
        tangents = []
        for i, e in enumerate(every):
            batched = [i in c for n, c in zip(self.word[k:], self.chosen[k:]) if n == "vmap"]
            logical = [BATCH] * sum(batched) + list(self.tensors[i].shape)
            here = e.shape[outside:]
            tangents.append(self.tangent(k, i, logical).reshape(here) if requires_grad[i] else None)
        total = expected_tangent(cell, tangents, requires_grad, None, cell.fill(every))
        check_same(where, results, total.reshape(results.shape), exact=False)

    def check_shares(self, where, requires_grad, g, results, every, outside=0):
        """Dimensions of the vmaps outside of this level stay; those inside are summed, or stay."""
        should = gradients(self.cell, self.cell.fill(every), self.cell.spread(requires_grad), g)
        for i, result in zip([i for i, w in enumerate(requires_grad) if w], results):
            share, kept = should[i], [*g.shape[:outside], *every[i].shape[outside:]]
            summed = list(share.shape) != kept
            share = (share.sum_to_size(kept) if summed else share).to(self.tensors[i].dtype)
            result = torch.zeros(share.numel(), dtype=share.dtype) if result is None else result
            check_same(
                f"{where}, Tensor {i}", result, share.reshape(result.shape), exact=not summed
            )


def plain(cell):
    args = cell.tensor_args
    return not cell.empty and all(a.layout == "plain" and len(a.shape) < 9 for a in args)


def of_one_dtype(cell):
    """Promotion under vmap goes by the dimensions that it shows:
    `vmap beside torch's own` compares it."""
    return plain(cell) and len({a.dtype for a in cell.tensor_args}) == 1 and cell.args[0].floating


def add(word):
    @whole_context(word, accepts=of_one_dtype)
    def run(f, cell):
        nest = Nest(word, cell)
        if "jvp" in word and not linear(cell):
            return no_jvp(lambda: nest.check(f))
        nest.check(f)


WORDS = [
    " ".join(word)
    for length in (1, 2, 3)
    for word in product(("vjp", "jvp", "vmap"), repeat=length)
]
for _word in WORDS:
    add(_word)


# ---- The gradient as a function of the incoming one, differentiated in its turn ------------------


def pulled(f, cell):
    """That function, and the one that pulls tangents of its results back to g."""
    differentiated = [i for i, w in enumerate(cell.requires_grad) if w]

    def pull(g):
        def of_differentiated(*some):
            given = dict(zip(differentiated, some))
            return f(*(given.get(i, t) for i, t in enumerate(cell.tensors)))

        return vjp(of_differentiated, *(cell.tensors[i] for i in differentiated))[1](g)

    def pushed_to(g, *tangents):
        given = dict(zip(differentiated, tangents))
        return expected_tangent(
            cell, [given.get(i) for i in range(len(cell.requires_grad))], cell.requires_grad, g
        )

    return pull, pushed_to


def tangents_of(tensors):
    return tuple(numbers(i, v.shape, v.dtype, FINITE) for i, v in enumerate(tensors))


def again(name):
    """Adds a context from (f, cell, g) -> None, for what is differentiated."""

    def add(context):
        @whole_context(name, accepts=lambda cell: of_one_dtype(cell) and cell.differentiable)
        def run(f, cell):
            context(f, cell, expected(cell).g.clone())

    return add


@again("vjp of vjp")
def reverse_over_reverse(f, cell, g):
    pull, pushed_to = pulled(f, cell)
    gradients, back = vjp(pull, g)
    tangents = tangents_of(gradients)
    check_gradients(cell, leaves_of(cell), gradients, expected(cell).unreduced_gradients)
    check_same("gradient of g", back(tangents)[0], pushed_to(g, *tangents), exact=False)


@again("jvp of vjp")
def forward_over_reverse(f, cell, g):
    """Under a pseudo-gradient, only what a bound gets has a tangent."""
    tangent = numbers(cell.seed + 1, g.shape, g.dtype, FINITE)
    if not linear(cell) and cell.requires_grad[0]:
        return no_jvp(lambda: jvp(pulled(f, cell)[0], (g,), (tangent,)))
    actual, tangents = jvp(pulled(f, cell)[0], (g,), (tangent,))
    leaves = leaves_of(cell)
    check_gradients(cell, leaves, actual, expected(cell).unreduced_gradients)
    args, requires_grad = cell.fill(cell.tensors), cell.spread(cell.requires_grad)
    of_tangent = gradients(cell, args, requires_grad, tangent)
    check_gradients(cell, leaves, tangents, of_tangent, "tangent")


def two_rows(g):
    return torch.stack((g, g.flip(0) if g.dim() else -g))


def check_rows(gs, of_gs, tangents, pushed_to):
    for k, (g, of_g) in enumerate(zip(gs, of_gs)):
        check_same(
            f"gradient of g, row {k}", of_g, pushed_to(g, *(t[k] for t in tangents)), exact=False
        )


@again("vjp of vmap of vjp")
def batched_and_reversed(f, cell, g):
    pull, pushed_to = pulled(f, cell)
    gs = two_rows(g)
    gradients, back = vjp(vmap(pull), gs)
    tangents = tangents_of(gradients)
    check_rows(gs, back(tangents)[0], tangents, pushed_to)


@again("is_grads_batched, differentiated")
def batched_twice(f, cell, g):
    leaves, gs = leaves_of(cell), two_rows(g).requires_grad_()
    gradients = grad(f(*leaves), leaves, gs, is_grads_batched=True, create_graph=True)
    tangents = tangents_of(gradients)
    of_gs = torch.autograd.grad(gradients, gs, tangents)[0]
    check_rows(gs.detach(), of_gs, tangents, pulled(f, cell)[1])


# ---- Arguments that curve: the levels above linearise at constants and along constants -----------


def curved(f, cell, at):
    """f along x + at v + at^2 w / 2, for every differentiated argument: its
    second derivative at 0 is the tangent of the result along w, because the table is a constant."""
    along = []
    for i, (x, differentiated) in enumerate(zip(cell.tensors, cell.requires_grad)):
        v, w = (numbers(cell.seed + k + i, x.shape, x.dtype, FINITE) for k in (3, 5))
        along.append(x + at * v + at * at * w / 2 if differentiated else x)
    return f(*along)


def bent(cell):
    tangents = [
        numbers(cell.seed + 5 + i, x.shape, x.dtype, FINITE) if differentiated else None
        for i, (x, differentiated) in enumerate(zip(cell.tensors, cell.requires_grad))
    ]
    return expected_tangent(cell, tangents, cell.requires_grad, None)


def slope_along(f, at):
    return jvp(f, (at,), (torch.ones_like(at),))[1]


def are_curved(cell):
    """vmap writes no result that is batched to an x that is not."""
    may_be_written = cell.requires_grad[0] or not FORMS[cell.form].in_place
    return of_one_dtype(cell) and cell.differentiable and may_be_written


def curves(name):
    """Adds a context from (f of a number, 0) -> the second derivative there."""

    def add(context):
        @whole_context(name, accepts=are_curved)
        def run(f, cell):
            def second_derivative():
                zero = torch.zeros((), dtype=cell.tensors[0].dtype)
                return context(lambda at: curved(f, cell, at), zero)

            if not linear(cell):
                return no_jvp(second_derivative)
            check_same("second derivative", second_derivative(), bent(cell), exact=False)

    return add


@curves("jvp of jvp")
def forward_over_forward(f, zero):
    return slope_along(lambda at: slope_along(f, at), zero)


@curves("jvp of vmap of jvp")
def forward_over_batched_forward(f, zero):
    rows = slope_along(vmap(lambda at: slope_along(f, at)), zero.new_zeros(BATCH))
    check_same("second row", rows[1], rows[0])
    return rows[0]


def has_samples(cell):
    return plain(cell) and all(a.shape for a in cell.tensor_args)


@whole_context("vmap beside torch's own", accepts=has_samples)
def vmap_beside_torch(f, cell):
    """Value and dtype where the arguments show torch fewer dimensions than they have."""
    tensors = cell.tensors
    smallest = min(t.shape[0] for t in tensors)
    tensors = [t[:smallest] for t in tensors]

    def call_torch(*args):
        x, *bounds = cell.fill(args)
        if cell.mixed:
            return cell.forward([x, *bounds])
        if "module" in cell.form:
            return torch.clamp(x, *bounds_of(cell, [x, *bounds]))
        return getattr(torch, cell.operator)(x, *bounds)

    # Sample by sample: torch's batching rule of clamp promotes otherwise (docs/support.md).
    # Integers get no gradient, and so go to torch.
    by_torch = not any(t.is_floating_point() for t in tensors)
    should = vmap(call_torch)(*tensors) if by_torch else torch.stack([*map(call_torch, *tensors)])
    check_same("value", vmap(f)(*tensors), should)
