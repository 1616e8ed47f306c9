"""In-place operators behave like torch's in all that can be seen (values, gradients, version
counters, errors, calls of hooks): programs are drawn, and run with torch.clamp_ and its relatives,
with ours under the convention of the installed release, and with torch's under that pin. The matrix
checks that input and output may change after a call."""

import random
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.autograd.forward_ad as fwad
from functorch.compile import aot_function, nop
from torch.fx.experimental.proxy_tensor import make_fx

import clampgrad
from oracle import CONVENTIONS, EXACT, TWO_STEP
from testing.comparing import assert_same
from testing.releases import RELEASED

PORTABLE = clampgrad.implementation == "portable"


def call_torch(name, x, *bounds):
    return getattr(torch, name)(x, *bounds)


def call_pinned(name, x, *bounds):
    with clampgrad.pin(RELEASED):
        return call_torch(name, x, *bounds)


def call_clampgrad(name, x, *bounds):
    return getattr(clampgrad, name)(x, *bounds, gradient=RELEASED)


# ---- Programs that are drawn ---------------------------------------------------------------------


def in_no_grad(f, x):
    with torch.no_grad():
        return f(x)


VIEWS = {
    "without its first row": lambda t: t[1:],
    "every second column": lambda t: t[..., ::2],
    "transposed": lambda t: t.transpose(0, -1),
    "expanded": lambda t: t.unsqueeze(0).expand(2, *t.shape),
    "the last of unbind": lambda t: t.unbind(0)[-1],
    "detached": lambda t: t.detach(),
    "flat": lambda t: t.reshape(-1),
    "a row, made in no_grad": partial(in_no_grad, lambda t: t[:1]),
    "as_strided": lambda t: t.as_strided(t.shape, t.stride(), t.storage_offset()),
    "unfolded": lambda t: t.unfold(-1, 2, 1) if t.shape[-1] > 1 else t[:],
    "overlapping itself": lambda t: t.as_strided((2, 3), (1, 1), t.storage_offset()),
}
BOUNDS = {
    "numbers": lambda x, learnt: (-1.0, 1.0),
    "NaN below": lambda x, learnt: (torch.nan, 1.0),
    "NaN above": lambda x, learnt: (-1.0, torch.nan),
    "made of x": lambda x, learnt: (x - 1, x.neg() + 1),
    "without dimensions": lambda x, learnt: (x.new_tensor(-1.0), torch.ones_like(x)),
    "wider": lambda x, learnt: (torch.full_like(x, -1).double(), torch.ones_like(x)),
    "learnt": lambda x, learnt: (torch.full_like(x, -1) + learnt * 0, torch.ones_like(x)),
    "too large, refused": lambda x, learnt: (
        torch.full_like(x, -1).expand(2, *x.shape),
        torch.ones_like(x),
    ),
}
OPERATORS = {"clamp_": slice(2), "clamp_min_": slice(1), "clamp_max_": slice(1, 2)}  # of the bounds
STEPS = ["view"] * 3 + ["hook"] * 2 + ["clamp"] * 3 + ["retain_grad", "add", "clamp in no_grad"]
ROOTS = {
    "a product": lambda x: x * 1,
    "another product": lambda x: x * 1,  # twice as often
    "exp": torch.exp,
    "zeros": torch.zeros_like,
    "the leaf": lambda x: x,
}


class Program:
    """Runs the same calls for the same seed, whatever `call` is."""

    def __init__(self, seed, call):
        self.draw, self.call = random.Random(seed), call
        self.x = torch.linspace(-3, 3, 12).reshape(3, 4).requires_grad_(self.draw.random() < 0.85)
        self.learnt = torch.tensor([0.5], requires_grad=True)
        self.tensors, self.retained, self.log = [], [], []
        self.taken = []  # the steps, in words

    def run(self):
        self.tensors.append(self.one_of(ROOTS)(self.x))
        for step in range(self.draw.randint(2, 8)):
            self.take(step, self.draw.choice(STEPS), self.draw.choice(self.tensors))
        return sum((t * (i + 1)).sum() for i, t in enumerate(self.tensors))

    def one_of(self, choices):
        name = self.draw.choice(list(choices))
        self.taken.append(name)
        return choices[name]

    def take(self, step, what, x):
        self.taken.append(what)
        if what == "view" and x.dim():
            self.tensors.append(self.one_of(VIEWS)(x))
        elif what == "hook" and x.requires_grad and (x.grad_fn or x is self.x):  # or torch crashes
            factor = self.draw.choice([0.5, 2.0, 3.0])
            x.register_hook(lambda g: self.log.append((step, g.tolist())) or g * factor)
        elif what == "retain_grad" and x.requires_grad:
            x.retain_grad()
            self.retained.append(x)
        elif what == "add":
            x.add_(self.draw.choice([1.0, self.learnt]))
        elif what.startswith("clamp"):
            name, bounds = self.draw.choice(list(OPERATORS)), self.one_of(BOUNDS)
            bounds = bounds(x.detach(), self.learnt)[OPERATORS[name]]
            self.taken.append(name)
            with torch.no_grad() if "no_grad" in what else nullcontext():
                self.call(name, x, *bounds)

    def outcome(self, around):
        error = None
        try:
            total = around(self.run)
            if total.requires_grad:
                total.backward()
        except RuntimeError as e:
            error = str(e).partition("\n")[0]
        tensors = [
            # Without detach, torch moves it by an operator that the graph has, which
            # no view of unbind can be in.
            (t.detach().tolist(), t.requires_grad, t.is_inference() or t._version)
            for t in self.tensors
        ]
        with_grad = [self.x, self.learnt, *self.retained]
        grads = [None if t.grad is None else t.grad.tolist() for t in with_grad]
        return repr({"error": error, "tensors": tensors, "grads": grads, "hooks": self.log})


def with_saved_tensor_hooks(f):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return f()


AROUND = {
    "plain": lambda f: f(),
    "saved-tensor hooks": with_saved_tensor_hooks,
    "inference mode": torch.inference_mode(lambda f: f()),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("call", [call_clampgrad, call_pinned], ids=["ours", "pinned"])
def test_programs_that_are_drawn(call, around):
    for seed in range(600):
        expected, program = Program(seed, call_torch), Program(seed, call)
        assert program.outcome(AROUND[around]) == expected.outcome(AROUND[around]), program.taken


# ---- One by one ----------------------------------------------------------------------------------

CASES = {
    "numbers": lambda v: ("clamp_", -1.0, 1.0),
    "NaN": lambda v: ("clamp_", torch.nan, 1.0),
    "Tensors": lambda v: ("clamp_", torch.full_like(v, -1), torch.ones_like(v)),
    "one Tensor": lambda v: ("clamp_max_", torch.ones_like(v)),
    "promoted": lambda v: ("clamp_", torch.full_like(v, -1).double(), torch.ones_like(v)),
}


@pytest.mark.parametrize("convention", ["min_norm", "inclusive", "half"])
@pytest.mark.parametrize("tangent", [False, True])
def test_a_hook_on_a_view_that_is_clamped_by_a_number_and_a_tensor(tangent, convention):
    """torch has no operator for it: the hook is not called, as with two numbers."""
    for bounds in ((torch.zeros(2), 1.0), (0.0, torch.ones(2))):
        x = torch.tensor([-2.0, 0.5, 3.0], requires_grad=True)
        with fwad.dual_level():
            y = (fwad.make_dual(x, torch.ones(3)) if tangent else x) * 1
            view = y[1:]
            view.register_hook(lambda g: g * 5)
            clampgrad.clamp_(view, *bounds, gradient=convention)
            assert torch.autograd.grad(y.sum(), x)[0].tolist() == [1, 1, 0]


def test_a_bound_that_is_the_tensor_that_is_written():
    """It is read before it is written."""
    for min, max in ((0.0, None), (None, 1.0)):
        y = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True) * 1
        bounds = [y if bound is None else bound for bound in (min, max)]
        expected = y.detach().clamp_max(1.0 if max else y.detach())
        assert_same(clampgrad.clamp_(y, *bounds, gradient="inclusive").detach(), expected)


@pytest.mark.parametrize("case", CASES)
def test_forward_mode(case):
    """Writes to a view, whose base has the tangent afterwards."""

    def tangents(call):
        with fwad.dual_level():
            y = fwad.make_dual(torch.tensor([-2.0, 0.5, 3.0]) * 1, torch.tensor([1.0, 2, 3]))
            view = y[1:]
            name, *bounds = CASES[case](fwad.unpack_dual(view).primal)
            call(name, view, *bounds)
            return [fwad.unpack_dual(t).tangent.clone() for t in (y, view)]

    assert_same(tangents(call_clampgrad), tangents(call_torch))


def test_forward_mode_where_a_bound_alone_requires_grad():
    """What is being differentiated is settled before x is written, which makes it require grad."""
    for f in (clampgrad.clamp_, clampgrad.clamp):
        with fwad.dual_level():
            x = fwad.make_dual(torch.zeros(2), torch.ones(2))
            low = torch.zeros(2, requires_grad=True)
            y = f(x * 1, low, low + 1)
            assert fwad.unpack_dual(y).tangent.tolist() == [0.5, 0.5], f


@pytest.mark.parametrize("case", CASES)
def test_inside_transforms(case):
    """Writes to a view under grad and vmap, and functionalized."""

    def f(call, x):
        y = x * 1
        view = y[1:]
        name, *bounds = CASES[case](torch.ones(2))
        call(name, view, *bounds)
        return (y * y).sum()

    stock, *slopes = (
        torch.func.grad(partial(f, call)) for call in (call_torch, call_clampgrad, call_pinned)
    )
    x, ones = torch.tensor([-2.0, 0.5, 3.0]), torch.ones(3)
    expected, tangent = torch.func.jvp(stock, (x,), (ones,))
    for g in slopes:
        if not PORTABLE:  # its autograd functions have no rule
            assert_same(torch.func.functionalize(g)(x), expected)
        assert_same(torch.func.vmap(g)(x.expand(2, 3)), expected.expand(2, 3))
        assert_same(torch.func.jvp(g, (x,), (ones,)), (expected, tangent))


def one_after_the_other(call, x, lo, hi):
    """torch has no operator for it, so there it is two calls."""
    if call is not call_torch:
        return call("clamp_", x, lo, hi)
    return call("clamp_max_", call("clamp_min_", x, lo), hi)


OVERLAPPING = {
    **{
        case: lambda call, v, case=case: call(CASES[case](v)[0], v, *CASES[case](v.detach())[1:])
        for case in CASES
    },
    "Tensor, number": lambda call, v: one_after_the_other(call, v, torch.full((2,), -1.0), 1.0),
    "number, Tensor": lambda call, v: one_after_the_other(call, v, -1.0, torch.ones(2)),
}
TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(f)(x[0]),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(f))(x),
    "vmap of grad, the batch last": lambda f, x: torch.func.vmap(torch.func.grad(f), 1)(x.mT),
    "grad of vmap": lambda f, x: torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x[0],), (x[1],))[1],
    "jvp of grad": lambda f, x: torch.func.jvp(torch.func.grad(f), (x[0],), (x[1],))[1],
    "grad of grad": lambda f, x: torch.func.grad(lambda x: torch.func.grad(f)(x).sum())(x[0]),
    "make_fx": lambda f, x: make_fx(torch.func.grad(f))(x[0])(x[0]),
    "make_fx of autograd": lambda f, x: make_fx(lambda x: torch.autograd.grad(f(x), x)[0])(
        x[0].clone().requires_grad_()
    )(x[0].clone().requires_grad_()),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("case", OVERLAPPING)
def test_a_view_that_overlaps_itself_inside_transforms(case, transform):
    """Each element is clamped once, however often the view has it."""

    def f(call, x):
        y = x * 1
        OVERLAPPING[case](call, y.unfold(0, 2, 1))
        OVERLAPPING[case](call, y[1:].unfold(0, 2, 1))
        return (y * y * torch.arange(1.0, 6)).sum()

    x = torch.tensor([[-2.0, 0.5, 3.0, -1.0, 1.0], [1.0, -0.5, 0.5, 2.0, -3.0]])
    expected = TRANSFORMS[transform](partial(f, call_torch), x)
    for call in (call_clampgrad, call_pinned) if case in CASES else (call_clampgrad,):
        assert_same(TRANSFORMS[transform](partial(f, call), x), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_share_is_not_rounded_to_the_dtype_of_a_view(dtype):
    lo, hi = (torch.ones(1, requires_grad=True) for _ in range(2))
    x = torch.ones(1, dtype=dtype, requires_grad=True)
    view = x.clone()[:]
    clampgrad.clamp_(view, lo, hi)
    tiny = 2.0**-24  # which float16 cannot divide
    for g in (1.0, tiny):
        g = torch.full((1,), g, dtype=dtype)
        for share in torch.autograd.grad(view, (lo, hi), g, retain_graph=True):
            assert_same(share, g.float() / 3)


@pytest.mark.parametrize("gradient", CONVENTIONS)
def test_no_tie_is_made_where_a_view_is_rounded(gradient):
    """A Tensor and a number that differ, but not in the dtype of what is written."""
    lo, hi = torch.tensor([1.001], requires_grad=True), 1.0005

    def gradients(clamp, again):
        x = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)
        y = again(x)
        return torch.autograd.grad(clamp(y, lo, hi, gradient=gradient).sum(), (x, lo))

    expected = gradients(clampgrad.clamp, torch.clone)
    if gradient in TWO_STEP:
        with pytest.raises(RuntimeError, match="would round .* to torch.bfloat16 .* Call clamp"):
            gradients(clampgrad.clamp_, torch.clone)
        return
    assert gradients(clampgrad.clamp_, torch.clone) == expected
    assert gradients(clampgrad.clamp_, lambda x: x.clone()[:]) == expected


def test_a_hook_on_a_view_inside_a_transform():
    """As in torch, it is not called, and the result cannot be vmapped over x with one gradient."""

    def f(call, x):
        view = x.clone()[1:]
        view.register_hook(lambda g: g * 5)
        return call("clamp_", view, -1.0, 1.0)

    def gradient(call, x):
        return torch.func.vjp(partial(f, call), x)[1](torch.ones(2))[0]

    x = torch.tensor([-2.0, 0.5, 3.0])
    for call in (call_torch, call_clampgrad, call_pinned):
        assert gradient(call, x).tolist() == [0, 1, 0]
        with pytest.raises(RuntimeError, match="vmap: inplace"):
            torch.func.vmap(partial(gradient, call))(x.expand(2, 3))


@pytest.mark.compiled("in the portable implementation it is autograd's ordinary rule")
def test_a_level_of_a_transform_notices_that_its_tensor_was_written():
    def f(x):
        y = x.exp()  # saves its result
        clampgrad.clamp_(y, torch.nan, 1.0)
        return y.sum()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.func.grad(f)(torch.ones(3))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("root", [lambda y: y, lambda y: y[:]], ids=["tensor", "view"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_place_where_a_hook_raises(convention, root, nth):
    """For whichever saved tensor it raises, nothing is written without a gradient. The
    compiled implementation writes nothing, except that the first of the two clamps by a
    Tensor and a number may have run."""
    zeros, ones = torch.zeros(3), torch.ones(3)
    for bounds in ((0, 1), (zeros, ones), (zeros, 1), (None, 1)):
        saved = []

        def full(t):
            saved.append(t)
            if len(saved) == nth:
                raise OSError("disk full")
            return t

        x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
        y = root(x * 1)
        try:
            with torch.autograd.graph.saved_tensors_hooks(full, lambda t: t):
                clampgrad.clamp_(y, *bounds, gradient=convention)
        except OSError:
            unchanged = y.detach() == x.detach()
            assert (
                PORTABLE or unchanged.all() or (unchanged.sum() == nth == 2 and bounds[1:] == (1,))
            )
            if convention in EXACT:
                assert torch.equal(torch.autograd.grad(y.sum(), x)[0], unchanged.float())
        else:
            assert len(saved) < nth
            assert y.tolist() == [0 if bounds[0] is not None else -1, 0.5, 1]


@pytest.mark.parametrize("shape", [(3,), ()], ids=str)
def test_a_bound_that_is_batched_and_larger(shape):
    """What is written has no room for the result of each sample."""
    x, bounds = torch.zeros(shape), torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="vmap: inplace"):
        torch.func.vmap(lambda bound: clampgrad.clamp_(x * 1, bound, None))(bounds)
    with pytest.raises(RuntimeError, match="vmap: inplace"):
        torch.func.vmap(lambda x: clampgrad.clamp_(x, bounds[0], None))(torch.zeros(2))


@pytest.mark.parametrize("layout", ["negated", "conjugated"])
@pytest.mark.parametrize("bounds", [(0.0, torch.ones(9)), (torch.zeros(9), 1.0), (torch.zeros(9),)])
def test_what_is_negated_lazily_is_written(bounds, layout):
    """PyTorch's copy_ from float32 to float16 ignores that. The imaginary part of one complex
    number is contiguous."""
    x = torch.tensor([-2.0, 0.0, 0.5, 1.0, 3.0, -1.0, 0.0, 1.0, 0.5], dtype=torch.half)
    y = torch._neg_view(-x)
    if layout == "conjugated":
        x, bounds = x[:1], [b[:1] if isinstance(b, torch.Tensor) else b for b in bounds]
        y = torch.complex(x, -x).conj().imag
    assert y.is_neg() and y.is_contiguous()
    assert clampgrad.clamp_(y, *bounds, gradient="inclusive") is y
    assert_same(y * 1, x.clamp(0, None if len(bounds) == 1 else 1))


@pytest.mark.of_kernels("compositions have nodes of their own")
@pytest.mark.compiled("likewise")
@pytest.mark.parametrize("name", OPERATORS)
def test_in_eager_mode_no_copy_is_made(name):
    """The node of what is written follows the one that it had before."""
    x = torch.zeros(3, requires_grad=True) * 1
    before = x.grad_fn
    call_clampgrad(name, x, *(0, 1)[OPERATORS[name]])
    ((follows, _),) = x.grad_fn.next_functions
    assert follows is before


# ---- In a graph, which is traced without Dynamo --------------------------------------------------

REFUSED = {
    "one of several views": lambda x, lo: (x.unbind()[0], lo),
    "a view that was made in no_grad": lambda x, lo: (in_no_grad(lambda x: x[0], x), lo),
}


MADE = {"an input": lambda x: x, "a clone": torch.clone, "a product": lambda x: x * 2}


@pytest.mark.filterwarnings("ignore:Error detected in torch")
@pytest.mark.parametrize("origin", MADE)
@pytest.mark.parametrize("bounds", ["Tensors", "numbers"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_refuses_what_torch_refuses(case, bounds, origin):
    def refusal(call):
        def f(x, lo):
            y = MADE[origin](x)
            part, lo = REFUSED[case](y, lo)
            call("clamp_", part, *((0, 1) if bounds == "numbers" else (lo, lo + 1)))
            return y * 2

        with pytest.raises(RuntimeError) as error:
            aot_function(f, nop)(torch.ones(2, 3, requires_grad=True), torch.zeros(3))
        return str(error.value)

    actual, expected = refusal(call_clampgrad), refusal(call_torch)
    assert PORTABLE or actual == expected


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.filterwarnings("ignore:Error detected in torch")
@pytest.mark.parametrize("origin", MADE)
def test_a_graph_does_with_larger_bounds_what_torch_does(origin):
    """From 2.14 on they are refused; before, what the graph has made is resized."""

    def outcome(call):
        def f(x, lo):
            y = MADE[origin](x)
            call("clamp_", y, lo, lo + 1)
            return y * 2

        try:
            args = torch.ones(2, 3, requires_grad=True), torch.zeros(4, 2, 3)
            return aot_function(f, nop)(*args).shape
        except RuntimeError as error:
            return str(error)

    actual, expected = outcome(call_clampgrad), outcome(call_torch)
    assert actual == expected or (PORTABLE and isinstance(actual, str))


@pytest.mark.parametrize("origin", MADE)
@pytest.mark.parametrize("i", [0, 1], ids=["min", "max"])
def test_a_graph_keeps_the_tangent_of_one_bound(i, origin):
    """A graph that writes its input may clamp a copy, and then copies the values back below
    autograd, without a tangent: not if a bound has one."""

    def outcome(call):
        def f(x, *bounds):
            y, bounds = MADE[origin](x), [*bounds]
            with fwad.dual_level():
                bounds[i] = fwad.make_dual(bounds[i], torch.full((5,), 3.0))
                call("clamp_", y, *bounds)
                return y * 2, fwad.unpack_dual(y).tangent

        x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
        y, tangent = aot_function(f, nop)(x, torch.zeros(5), torch.ones(5))
        assert tangent is not None
        return y.detach(), tangent, torch.autograd.grad(y.sum(), x)[0]

    for actual, expected in zip(outcome(call_clampgrad), outcome(call_torch), strict=True):
        assert torch.equal(actual, expected)
