"""One cell of the matrix as data: the arguments of a call, its gradient, its form and its context.

The repr of a Cell is the line to paste: `python -m testing.matrix "Cell(...)"` runs it again.
"""

import random
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache

import torch

from testing.matrix import reference

inf, nan = float("inf"), float("nan")


def neg_view(t):
    return torch._neg_view(t.neg())


def imaginary_of_conj(t):
    return torch.complex(t, t.neg()).conj().imag


def with_gaps(t):
    """Every second element of a buffer, in every dimension."""
    wide = t
    for d in range(t.dim()):
        wide = torch.stack((wide, wide), d + 1).flatten(d, d + 1)
    return wide[(slice(None, None, 2),) * t.dim()]


def backwards(t):
    return t.permute(tuple(range(t.dim()))[::-1])


# The layouts of a tensor in memory, each as a differentiable function that keeps its values.
LAYOUTS = {
    "plain": lambda t: t,
    "transposed": lambda t: t.clone().mT.contiguous().mT if t.dim() > 1 else t.clone(),
    "reversed": lambda t: backwards(backwards(t).contiguous()),
    "channels_last": lambda t: (
        t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t.clone()
    ),
    "gaps": with_gaps,
    "offset": lambda t: torch.cat((t.new_zeros(1), t.flatten()))[1:].view(t.shape),
    "neg": neg_view,
    "conj": imaginary_of_conj,
}


def format_call(thing, first):
    """The call that makes it: the first fields by position, the others
    if they are not the default."""
    values = {f.name: getattr(thing, f.name) for f in fields(thing)}
    words = [repr(v) for v in values.values()][:first]
    words += [
        f"{f.name}={values[f.name]!r}" for f in fields(thing)[first:] if values[f.name] != f.default
    ]
    return f"{type(thing).__name__}({', '.join(words)})"


@dataclass(frozen=True)
class Arg:
    """A Tensor: its values in order, its shape, and what it looks like."""

    values: tuple
    shape: tuple
    dtype: str = "float32"
    layout: str = "plain"
    requires_grad: bool = True

    def __repr__(self):
        return format_call(self, 2)

    def make(self):
        dtype = getattr(torch, self.dtype)
        return torch.tensor(self.values, dtype=torch.float64).to(dtype).reshape(self.shape)

    @property
    def floating(self):
        return getattr(torch, self.dtype).is_floating_point


@dataclass(frozen=True, eq=False)
class Cell:
    """Two cells are equal if their text is: 0 is another bound than
    0.0, and promotes differently."""

    operator: str
    args: tuple  # Arg, number or None
    gradient: str = "min_norm"
    maximize: bool = False
    form: str = "function"
    context: str = "plain"
    seed: int = 0  # of the incoming gradient

    def __repr__(self):
        return format_call(self, 2)

    @cached_property
    def text(self):
        return repr(self)

    def __eq__(self, other):
        return isinstance(other, Cell) and self.text == other.text

    def __hash__(self):
        return hash(self.text)

    @cached_property
    def tensor_args(self):
        return [a for a in self.args if isinstance(a, Arg)]

    @cached_property
    def tensors(self):
        """Their values in plain memory."""
        return [a.make() for a in self.tensor_args]

    @cached_property
    def empty(self):
        return any(0 in a.shape for a in self.tensor_args)

    @cached_property
    def value(self):
        return _expected(self.plain_cell).value

    @cached_property
    def plain_cell(self):
        """The same arguments and gradient in the plainest form and context."""
        return replace(self, form="function", context="plain")

    @cached_property
    def requires_grad(self):
        return tuple(a.requires_grad and a.floating for a in self.tensor_args)

    @cached_property
    def numbers(self):
        return not any(isinstance(a, Arg) for a in self.args[1:])

    @cached_property
    def mixed(self):
        given = [isinstance(a, Arg) for a in self.args[1:] if a is not None]
        return any(given) and not all(given)

    @cached_property
    def pseudo(self):
        return self.gradient in reference.PSEUDO

    @cached_property
    def differentiable(self):
        return any(self.requires_grad)

    def fill(self, tensors):
        """The arguments with these tensors in the places of the Args, and what comes
        after them in the numbers'."""
        given = list(tensors)
        filled = [given.pop(0) if isinstance(a, Arg) else a for a in self.args]
        return [given.pop(0) if given and isinstance(a, (int, float)) else a for a in filled]

    def spread(self, flags):
        """One entry per argument, from `flags`, which has one per Tensor; False for numbers."""
        flags = iter(flags)
        return [next(flags) if isinstance(a, Arg) else False for a in self.args]

    def laid_out(self, tensors):
        """Each tensor in its layout; differentiable."""
        return [LAYOUTS[a.layout](t) for a, t in zip(self.tensor_args, tensors)]

    def forward(self, args):
        """torch's own operator, with an entry for every argument of the call."""
        return reference.forward(self.operator, args)

    def reduced(self):
        """Operator and arguments without those that are None: a clamp with one
        bound is clamp_min or _max."""
        if self.operator == "clamp" and None in self.args:
            return ("clamp_max" if self.args[1] is None else "clamp_min"), [
                i for i, a in enumerate(self.args) if a is not None
            ]
        return self.operator, list(range(len(self.args)))


# Gradients that tell a select from a product, ties from blocks, and descent from ascent.
COTANGENTS = (3.0, -6.0, 0.0, inf, -inf, nan, 1.5, -0.75, 12.0, -0.0, 9.0, -3.0, 65504.0, -9.0)
# And, in float16 and bfloat16, whether a share of a subnormal number is rounded to even.
COTANGENTS += (3 * 2.0**-24, 5 * 2.0**-24, 3 * 2.0**-133, -7 * 2.0**-133, 1.0, 5.0)
FINITE = tuple(v for v in COTANGENTS if abs(v) < 100)


def numbers(seed, shape, dtype, values=COTANGENTS):
    """Every kind of number, in an order that `seed` gives. Not random to torch: vmap asks."""
    count = torch.Size(shape).numel()
    chosen = random.Random(seed).choices(values, k=count)
    return torch.tensor(chosen, dtype=torch.float64).to(dtype).reshape(shape)


@dataclass
class Expected:
    """The expected result of a call, and the gradient of each Tensor argument before reduction."""

    value: torch.Tensor
    g: torch.Tensor | None = None
    unreduced_gradients: list = field(default_factory=list)


def gradients(cell, args, requires_grad, g):
    """The gradient of each Tensor argument; `args` and `requires_grad` have an entry for
    every argument of the call."""
    # Up to 2.11 clamp ignores a NaN as its only bound, and clamp_min does not.
    y = cell.forward(args)
    operator, given = cell.reduced()
    args, requires_grad = ([every[i] for i in given] for every in (args, requires_grad))
    shares = reference.gradients(operator, cell.gradient, cell.maximize, args, requires_grad, g, y)
    return [s for s, i in zip(shares, given) if isinstance(cell.args[i], Arg)]


def compute_expected(cell):
    """What is expected in the present state of the process."""
    args = cell.fill(cell.tensors)
    value = cell.forward(args)
    if not value.is_floating_point() or not cell.differentiable:
        return Expected(value)
    g = numbers(cell.seed, value.shape, value.dtype)
    return Expected(value, g, gradients(cell, args, cell.spread(cell.requires_grad), g))


_expected = lru_cache(maxsize=100_000)(compute_expected)


def expected(cell):
    return _expected(cell.plain_cell)


def reduced_to(share, like):
    """Sums and casts a gradient as autograd does to undo a broadcast."""
    return share.sum_to_size(like.shape).to(like.dtype)
