"""Wrong gradients, wrong results and crashes that were found, one test for the class of each."""

import copy
from functools import partial
from itertools import product

import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.func import grad, jacfwd, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

import clampgrad
from common import assert_same
from oracle import CONVENTIONS

OPS = torch.ops.clampgrad
NOT_LINEAR = ["with_grad", "restoring"]


def gradients(y, *inputs):
    return torch.autograd.grad(y, inputs, torch.linspace(-2, 2, y.numel()).reshape(y.shape))


# ---- What is saved is saved after it is written ---------------------------------------------------


def copied(f, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return f(x)


def offloaded(f, x):
    with torch.autograd.graph.save_on_cpu():
        return f(x)


def watched(f, x):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return f(x)


SAVING = {
    "hooks that copy": copied,
    "save_on_cpu": offloaded,
    "checkpoint": partial(checkpoint, use_reentrant=False),
    "anomaly mode": watched,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("saving", SAVING)
def test_in_place_under_saved_tensor_hooks(saving, convention):
    x = torch.linspace(-2, 2, 1000).requires_grad_()
    tensors = torch.full((1000,), -1.0), torch.ones(1000)
    calls = [
        lambda f, x: f(x, -1, 1, gradient=convention),
        lambda f, x: f(x[::2], -1, 1, gradient=convention),
        lambda f, x: f(x, *tensors, gradient=convention),
        lambda f, x: f(x, tensors[0], 1, gradient=convention),
    ]
    for call in calls:
        (expected,) = gradients(call(clampgrad.clamp, x), x)
        torch.randint(0, 255, (1 << 12,), dtype=torch.uint8)  # what empty memory then holds
        y = SAVING[saving](lambda x: call(clampgrad.clamp_, x.clone()), x)
        assert_same(gradients(y, x)[0], expected)


# ---- Memory orders --------------------------------------------------------------------------------


LAYOUTS = {
    "channels last, height 1": torch.randn(2, 3, 1, 5).to(memory_format=torch.channels_last),
    "channels last, one channel": torch.randn(2, 1, 3, 5).to(memory_format=torch.channels_last),
    "channels last, batch 1": torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": torch.randn(4, 1, 6).permute(2, 1, 0),
    "size 1 outside": torch.randn(6, 4).t()[None],
    "size 1 inside": torch.randn(6, 4).t()[..., None],
    "any stride": torch.randn(24).as_strided((4, 1, 6), (1, 17, 4)),
    "channels last, any stride": torch.randn(30).as_strided((2, 3, 1, 5), (15, 1, 7, 3)),
    "contiguous, any stride": torch.randn(24).as_strided((4, 1, 6), (6, 3, 1)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_are_torchs(name):
    x = LAYOUTS[name]
    assert x.is_non_overlapping_and_dense() if hasattr(x, "is_non_overlapping_and_dense") else True
    lo, dense = torch.zeros_like(x), torch.ones(x.shape)
    calls = {
        "numbers": lambda m, x: m.clamp(x, 0, 1),
        "one": lambda m, x: m.clamp_min(x, lo),
        "two": lambda m, x: m.clamp(x, lo, lo + 1),
        "mixed layouts": lambda m, x: m.maximum(x, dense),
        "broadcast": lambda m, x: m.maximum(x, torch.zeros(x.shape[-1])),
    }
    for call in calls.values():
        y = call(clampgrad, x.clone(memory_format=torch.preserve_format).requires_grad_())
        assert y.stride() == call(torch, x.clone(memory_format=torch.preserve_format)).stride()
        y = call(clampgrad, x.detach().requires_grad_())
        assert y.stride() == call(torch, x).stride()
        assert_same(y.detach(), call(torch, x))


SLICES = {
    "channels, channels last": torch.randn(2, 6, 3, 5).to(memory_format=torch.channels_last)[:, :4],
    "columns, channels last": torch.randn(2, 6, 3, 5).to(memory_format=torch.channels_last)[
        ..., ::2
    ],
    "rows, transposed": torch.randn(6, 5, 4).permute(2, 0, 1)[:, 1:4],
    "repeated, transposed": torch.randn(6, 1, 4).permute(2, 1, 0).expand(4, 3, 6),
}


@pytest.mark.parametrize("name", SLICES)
def test_gradients_of_slices_have_torchs_strides(name):
    """A convolution before the clamp sums in another order where they are others."""
    x = SLICES[name]
    for call in (lambda m, x: m.clamp(x, 0, 1), lambda m, x: m.clamp_min(x, 0)):
        leaf = x.detach().requires_grad_()
        ours, theirs = (
            torch.autograd.grad(call(m, leaf).sum(), leaf)[0] for m in (clampgrad, torch)
        )
        assert ours.stride() == theirs.stride()
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", [name for name in SLICES if "repeated" not in name])
def test_slices_in_place(name):
    x, g = SLICES[name], torch.randn(SLICES[name].shape)
    leaf = x.as_strided((x.untyped_storage().size() // 4,), (1,), 0).clone().requires_grad_()
    y = (leaf * 1).as_strided(x.shape, x.stride(), x.storage_offset())
    (expected,) = torch.autograd.grad(clampgrad.clamp(y, 0, 1), leaf, g, retain_graph=True)
    assert clampgrad.clamp_(y, 0, 1) is y
    assert_same(y.detach(), torch.clamp(x, 0, 1))
    assert_same(torch.autograd.grad(y, leaf, g)[0], expected)


@pytest.mark.parametrize("size, order", [([6, 4], []), ([6, 4], [1, 0]), ([2, 3, 1, 5], [0, 2, 3, 1])])
def test_masks_have_the_same_strides_on_meta(size, order):
    bits = torch.zeros(8, dtype=torch.uint8)
    mask, on_meta = (OPS._mask(b, size, 2, 1, order) for b in (bits, bits.to("meta")))
    assert mask.stride() == on_meta.stride() and mask.dtype == on_meta.dtype == torch.bool


# ---- Levels of torch.func -------------------------------------------------------------------------


PAIRS = {
    "maximum": (clampgrad.maximum, torch.maximum),
    "clamp_min": (clampgrad.clamp_min, torch.clamp_min),
    "clamp": (
        lambda x, c: clampgrad.clamp(x, c, c + 0.5),
        lambda x, c: torch.clamp(x, c, c + 0.5),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_constants_of_every_level(name):
    """Three levels; the innermost vmap batches none of the arguments, or one of them."""
    nests = [
        lambda f: (
            lambda x, c: grad(lambda x: vmap(lambda t: (t * f(x, c)).sum())(torch.ones(5)).sum())(x)
        ),
        lambda f: (
            lambda x, c: grad(
                lambda x: vmap(lambda t: f(x, t * c).sum())(torch.linspace(0.5, 2, 5)).sum()
            )(x)
        ),
        lambda f: (
            lambda x, c: grad(
                lambda c: vmap(lambda t: f(t * x, c).sum())(torch.linspace(0.5, 2, 5)).sum()
            )(c)
        ),
        lambda f: (
            lambda x, c: vmap(lambda t: grad(lambda x: (t * f(x, c)).sum())(x))(
                torch.linspace(0.5, 2, 5)
            )
        ),
    ]
    x, c = torch.randn(3, 4), torch.randn(3, 4)
    for nest in nests:
        ours, theirs = (vmap(nest(f))(x, c) for f in PAIRS[name])
        assert_same(ours, theirs)


def test_a_tensor_without_dimensions_promotes_as_under_torchs_vmap():
    dtypes = torch.float16, torch.float32, torch.float64
    names = ["clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin"]
    for one in dtypes:
        for other in dtypes:
            x, y = torch.randn(2, 3).to(one), torch.randn(2).to(other)
            for name in names:
                ours, theirs = getattr(clampgrad, name), getattr(torch, name)
                for args, dims in (((x, y), (0, 0)), ((y, x), (0, 0)), ((y, x[0]), (0, None))):
                    assert vmap(ours, dims)(*args).dtype == vmap(theirs, dims)(*args).dtype, name
                    assert_same(vmap(ours, dims)(*args), vmap(theirs, dims)(*args))


CLAMPED = {
    "numbers": lambda x, c: clampgrad.clamp(x, 0.0, 1.0, gradient=c),
    "one Tensor": lambda x, c: clampgrad.clamp_max(x, torch.ones(3), gradient=c),
    "Tensors": lambda x, c: clampgrad.clamp(x, torch.zeros(3), torch.ones(3), gradient=c),
    "mixed": lambda x, c: clampgrad.clamp(x, 0.0, torch.ones(3), gradient=c),
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("bounds", CLAMPED)
@pytest.mark.parametrize("convention", NOT_LINEAR)
def test_no_tangent_of_a_pseudo_gradient_at_any_level(convention, bounds, pinned):
    def f(x):
        if not pinned:
            return CLAMPED[bounds](x, convention)
        with clampgrad.pin(convention):
            ones = torch.ones(3)
            return torch.clamp_max(x, ones) if bounds == "one Tensor" else torch.clamp(x, 0.0, 1.0)

    x, w = torch.tensor([-1.0, 0.5, 2.0]), torch.tensor([1.0, 2.0, 3.0])
    weighted = lambda w: grad(lambda x: (w * f(x)).sum())(x)  # noqa: E731
    refused = [
        lambda: jvp(weighted, (w,), (torch.ones(3),)),
        lambda: jvp(lambda w: vmap(lambda t: weighted(t * w))(torch.ones(2)), (w,), (w,)),
        lambda: jacfwd(weighted)(w),
        lambda: jacfwd(jacrev(lambda x: f(x).square().sum()))(x),
        lambda: jacfwd(jacrev(lambda w: (w * f(w * x)).sum()))(w),
    ]
    for call in refused:
        with pytest.raises(NotImplementedError, match="forward mode is not defined"):
            call()
    x.requires_grad_()
    with fwad.dual_level():
        dual = fwad.make_dual(w, torch.ones(3))
        with pytest.raises(NotImplementedError, match="forward mode is not defined"):
            torch.autograd.grad(f(x), x, dual)
    # Reverse over reverse differentiates the selection.
    ones = torch.autograd.functional.jacobian(weighted, w)
    passes = torch.autograd.grad(f(x).sum(), x)[0] if convention == "with_grad" else None
    expected = passes if passes is not None else ((x >= 0) & (x <= 1)).float()
    assert_same(ones, expected.diag() if bounds != "one Tensor" or passes is not None else ones)


# ---- Mixed bounds ---------------------------------------------------------------------------------

DTYPES = [torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32]
DTYPES += [torch.float64]
NUMBERS = [0.1, -1, 1000, float("nan")]


def outcome(f):
    try:
        return f()
    except (RuntimeError, ValueError) as error:
        return type(error), str(error).split("\n")[0]


def leaf(tensor, recorded):
    return tensor.clone().requires_grad_(recorded and tensor.is_floating_point())


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_mixed_bounds_have_the_value_and_dtype_of_the_chain(convention, recorded):
    def chain(x, lo, hi):
        return torch.clamp_max(torch.clamp_min(x, lo), hi)

    def ours(x, lo, hi):
        return clampgrad.clamp(x, lo, hi, gradient=convention)

    values = torch.tensor([0.0, 1, 2, 100])
    for of_x, of_bound, number in product(DTYPES, DTYPES, NUMBERS):
        x = leaf(values.to(of_x), recorded)
        for tensor in (values.flip(0), torch.tensor(1.5)):
            bound = leaf(tensor.to(of_bound), recorded)
            for bounds in ((bound, number), (number, bound)):
                expected, got = (
                    outcome(lambda: chain(x, *bounds)),
                    outcome(lambda: ours(x, *bounds)),
                )
                where = of_x, of_bound, bounds
                if isinstance(expected, tuple):
                    assert got == expected, where
                else:
                    assert isinstance(got, torch.Tensor), (where, got)
                    assert got.dtype == expected.dtype, where
                    assert_same(got.detach(), expected.detach())


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_mixed_bounds_in_place_and_out(convention):
    x, lo = torch.tensor([0.0, 1.0], dtype=torch.float16), torch.tensor([-1.0, 0.5])
    expected = clampgrad.clamp(x, lo, 0.1, gradient=convention)
    out = torch.empty(0)
    assert clampgrad.clamp(x, lo, 0.1, gradient=convention, out=out) is out
    assert_same(out, expected)
    y = x.clone()
    assert clampgrad.clamp_(y, lo, 0.1, gradient=convention) is y
    assert_same(y, expected.half())
    with pytest.raises(RuntimeError, match="can't be cast"):
        clampgrad.clamp_(torch.tensor([1, 2]), lo, 1, gradient=convention)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("records", [False, True])
def test_in_place_changes_nothing_before_it_raises(records, convention):
    for bounds in ((0, torch.zeros(3)), (torch.zeros(3), 0), (0.0, torch.zeros(3, 1))):
        x = torch.tensor([-1.0, 2.0], requires_grad=records)
        y = x * 1
        version = y._version
        with pytest.raises(RuntimeError):
            clampgrad.clamp_(y, *bounds, gradient=convention)
        assert y.tolist() == [-1.0, 2.0] and y._version == version


def test_mixed_bounds_everywhere():
    """Dynamo, TorchScript and the dispatcher take the same operators."""
    x, lo = torch.tensor([-1.0, 0.0, 0.5, 1.0]), torch.zeros(4)
    want = clampgrad.clamp(x.requires_grad_(), lo.requires_grad_(), 1.0, gradient="joint")
    expected = gradients(want, x, lo)

    def f(x, lo):
        return clampgrad.clamp(x, lo, 1.0, gradient="joint")

    def g(x: torch.Tensor, lo: torch.Tensor) -> torch.Tensor:
        return clampgrad.clamp(x, lo, 1.0, gradient="joint")

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    for call in (compiled, torch.jit.script(g), partial(OPS.clamp, max=1.0, gradient="joint")):
        y = call(x, lo)
        assert_same(y.detach(), want.detach())
        for got, value in zip(gradients(y, x, lo), expected):
            assert_same(got, value)
    # A Tensor without dimensions is a Tensor, beside a number too.
    zero, bound = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
    assert [v.item() for v in gradients(torch.jit.script(g)(zero, bound) * -0.5, zero, bound)] == [
        v.item() for v in gradients(g(zero, bound) * -0.5, zero, bound)
    ]


# ---- Private operators ----------------------------------------------------------------------------

WRONG = {
    "bits per element": "ops._mask(torch.zeros(8, dtype=torch.uint8), [4], 2, 99, [])",
    "bits on meta": "ops._mask(torch.zeros(8, dtype=torch.uint8, device='meta'), [4], 2, 99, [])",
    "bits": "ops._mask(torch.zeros(8, dtype=torch.uint8), [4096], 2, 1, [])",
    "dtype of bits": "ops._mask(torch.zeros(8), [4], 2, 1, [])",
    "order of a mask": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [1, 1])",
    "long order of a mask": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [0, 1, 2])",
    "order below 0": "ops._mask(torch.zeros(8, dtype=torch.uint8), [2, 2], 2, 1, [-1, 0])",
    "extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'clamp_min', 'half')",
    "unknown extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'max', 'half')",
    "gradient of an extremum": "ops._extremum_composed(*2 * [torch.ones(4)], 'fmax', 'ste')",
    "pseudo gradient": "ops._pseudo_gradient(torch.ones(4), *3 * [torch.ones(4) > 0], 'half', False)",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_private_operators_check_what_they_are_given(wrong):
    names = {"torch": torch, "ops": OPS}
    with pytest.raises((ValueError, RuntimeError)):
        eval(WRONG[wrong], names)
    with_grad = WRONG[wrong].replace("torch.ones(4)", "torch.ones(4, requires_grad=True)")
    with pytest.raises((ValueError, RuntimeError)):
        eval(with_grad, names)


def test_a_composed_operator_reads_its_names_in_backward():
    y = OPS._clamp_composed(torch.ones(4, requires_grad=True), 0.0, 1.0, "none", False)
    with pytest.raises(ValueError, match="unknown gradient 'none'"):
        y.sum().backward()


# ---- In place where the fused kernels decline -----------------------------------------------------


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_in_place_beside_a_bound_without_memory(convention):
    """No kernel takes a ZeroTensor. Views that are lazily negated, and others: matrix/test_fuzz.py."""
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    lo = torch._efficientzerotensor(5)
    for bounds in ((lo, torch.ones(5)), (lo, 1.0), (lo, None)):
        y = x * 1
        expected = clampgrad.clamp(y, *bounds, gradient=convention)
        (of_x,) = torch.autograd.grad(expected.sum(), x, retain_graph=True)
        assert clampgrad.clamp_(y, *bounds, gradient=convention) is y
        assert_same(torch.autograd.grad(y.sum(), x)[0], of_x)
        assert_same(y.detach(), expected.detach())


@pytest.mark.parametrize("name", ["clamp_", "clamp_min_", "clamp_max_"])
def test_arguments_that_overlap_are_refused_as_by_torch(name):
    def call(namespace, y, other):
        bounds = (other, other) if name == "clamp_" else (other,)
        return getattr(namespace, name)(y, *bounds)

    for records in (False, True):
        y = torch.zeros(4).requires_grad_(records) * 1
        for namespace in (torch, clampgrad):
            with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
                call(namespace, y[:3], y[1:])
            with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
                call(namespace, y[:1].expand(4), torch.zeros(4))
        with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
            clampgrad.clamp_(y[:3], 0, y[1:])
        with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
            clampgrad.clamp_(y[:1].expand(4), 0, 1)


# ---- Devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
def test_a_cpu_scalar_beside_another_device_when_recorded(name):
    """Meta has the rules of every device but the CPU."""
    for other in (torch.tensor(0.0), torch.tensor(0.0, dtype=torch.float64)):
        x = torch.randn(3, device="meta", requires_grad=True)
        y = getattr(clampgrad, name)(x, other)
        expected = getattr(torch, name)(x.detach(), other)
        assert (y.device, y.dtype) == (expected.device, expected.dtype) and y.requires_grad
        assert torch.autograd.grad(y.sum(), x)[0].device == x.device
        z = x * 1
        assert getattr(clampgrad, name + "_")(z, other) is z
        assert getattr(clampgrad, name)(other.requires_grad_(), x).device == x.device
        bounds = (other, 1.0) if name == "clamp_min" else (0.0, other)
        assert clampgrad.clamp(x, *bounds).device == x.device


# ---- Names ----------------------------------------------------------------------------------------

ALIASES = {
    "torch_2_13": "inclusive",
    "torch_2_15": "joint",
    "jax": "half",
    "ste": "straight_through",
}


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases(alias):
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, torch.nan], requires_grad=True)
    for y, expected in (
        (f(x, *bounds, gradient=alias), f(x, *bounds, gradient=ALIASES[alias]))
        for f in (clampgrad.clamp, lambda x, *b, **k: clampgrad.clamp_(x * 1, *b, **k))
        for bounds in ((0, 1), (torch.zeros(6), torch.ones(6)), (0, torch.ones(6)))
    ):
        assert_same(gradients(y, x)[0], gradients(expected, x)[0])
    with clampgrad.pin(alias):
        assert clampgrad.pin.current() == clampgrad.pin.current()
        assert_same(
            gradients(torch.clamp(x, 0, 1), x)[0],
            gradients(clampgrad.clamp(x, 0, 1, gradient=alias), x)[0],
        )
    if ALIASES[alias] == "straight_through":
        with pytest.raises(ValueError, match="for clamps only"):
            clampgrad.maximum(x, x, gradient=alias)


def test_the_packet_tries_numbers_then_tensors():
    """An overload that does not fit costs an exception, so that the order is a matter of speed."""
    for name in ("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"):
        for operator in (name, name.rstrip("_") + "_mingrad" + "_" * name.endswith("_")):
            assert getattr(OPS, operator).overloads()[:2] == ["default", "Tensor"]
    assert OPS.clamp.overloads()[2:4] == ["Tensor_Scalar", "Scalar_Tensor"]


def test_a_module_in_place_survives_copies():
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), clampgrad.nn.ReLU6(inplace=True))
    x = torch.randn(32, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    for _ in range(3):
        torch.randint(0, 255, (1, 2048), dtype=torch.uint8)
        y = checkpoint(copy.deepcopy(model), x, use_reentrant=False)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], expected)


WIDER = [
    (torch.float16, 0.0, torch.float32, 1e-8, "clamp_min"),
    (torch.float16, 65504.0, torch.float32, 65510.0, "clamp_min"),
    (torch.bfloat16, 1.0, torch.float64, 1 + 1e-9, "maximum"),
    (torch.float32, 1.0, torch.float64, 1 - 1e-12, "clamp_max"),
]


def written(x, b, name, gradient):
    y = x * 1
    return getattr(clampgrad, f"{name}_")(y, b, gradient=gradient)


def view_written(x, b, name, gradient):
    y = x * 1
    getattr(clampgrad, f"{name}_")(y[:], b, gradient=gradient)
    return y


def written_beside_a_number(x, b, name, gradient):
    y = x * 1
    beside = {"clamp_min": (b, torch.inf), "clamp_max": (-torch.inf, b)}[name]
    clampgrad.clamp_(y[:], *beside, gradient=gradient)
    return y


def list_written(x, b, name, gradient):
    y = x * 1
    with clampgrad.pin(gradient):
        getattr(torch, f"_foreach_{name}_")([y], [b])
    return y


def compiled_of(f):
    def call(*args):
        torch._dynamo.reset()
        return torch.compile(f, backend="aot_eager", fullgraph=True)(*args)

    return call


IN_PLACE = {
    "tensor": written,
    "view": view_written,
    "compiled": compiled_of(written),
    "compiled view": compiled_of(view_written),
    "beside a number": written_beside_a_number,
    "list": list_written,
}


@pytest.mark.parametrize("how", IN_PLACE)
@pytest.mark.parametrize("dtype, value, wider, bound, name", WIDER)
@pytest.mark.parametrize("gradient", ["min_norm", "inclusive", "joint", "half"])
def test_a_bound_of_a_wider_dtype_is_compared_in_it_in_place_too(
    dtype, value, wider, bound, name, gradient, how
):
    if name == "maximum" and how != "list":
        pytest.skip("has no form in place for one tensor")
    x = torch.tensor([value], dtype=dtype, requires_grad=True)
    b = torch.tensor([bound], dtype=wider, requires_grad=True)
    expected = getattr(clampgrad, name)(x, b, gradient=gradient)
    found = IN_PLACE[how](x, b, name, gradient)
    assert found.dtype == dtype
    assert_same(found.detach(), expected.detach().to(dtype))
    theirs = torch.autograd.grad(expected.sum(), (x, b))
    for ours, other in zip(torch.autograd.grad(found.sum(), (x, b)), theirs):
        assert_same(ours, other)


@pytest.mark.compiled("the portable implementation saves no bits")
@pytest.mark.parametrize(
    "bounds", [(0, 6), (torch.zeros(4), None), (torch.zeros(4), 6 * torch.ones(4))]
)
def test_bits_that_come_back_as_another_kind_of_tensor(bounds):
    """No kernel reads the memory of a tensor that has none."""
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    x = torch.tensor([-1.0, 0.0, 3.0, 9.0], requires_grad=True)
    (expected,) = torch.autograd.grad(clampgrad.clamp(x, *bounds).sum(), x)
    for unpack in (lambda b: two_tensor(b, b), lambda b: torch._neg_view(torch.neg(b))):
        with torch.autograd.graph.saved_tensors_hooks(lambda b: b, unpack):
            y = clampgrad.clamp(x, *bounds)
            (found,) = torch.autograd.grad(y.sum(), x)
        assert_same(found.a if isinstance(found, two_tensor) else found, expected)
