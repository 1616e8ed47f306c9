"""Bad input raises a clear error, torch's own where torch has one, and changes nothing."""

import enum
import re
import sys
import types
from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import clampgrad
from clampgrad._contract.messages import MESSAGES
from clampgrad._contract.table import ALIASES, unknown_gradient_message
from oracle import CLAMPS, CONVENTIONS, EXTREMA
from testing.cases import sample_if_portable
from testing.comparing import DTYPES, assert_same, result_or_error
from testing.matrix.reference import forward

BOUNDS = {"clamp": (0, 1), "clamp_min": (0,), "clamp_max": (1,)}
NAMES = [name + suffix for name in (*CLAMPS, "clip") for suffix in ("", "_")]
ACTIVATIONS = ("relu", "relu6", "hardtanh")


def complaint(f, *args, **keywords):
    error = result_or_error(f, *args, **keywords)
    assert isinstance(error, tuple), "no error"
    return error


MEANT = {
    "inclsive": "'inclusive'",
    "Inclusive": "'inclusive'",
    "min-norm": "'min_norm'",
    "minnorm": "'min_norm'",
    "torch_2_14": "'torch_2_13' or 'torch_2_15'",  # as far from one as from the other
    "straightthrough": "'straight_through'",
    "nothing": None,
    "": None,
}


@pytest.mark.parametrize("wrong", MEANT)
def test_an_unknown_convention_is_told_what_was_meant(wrong):
    """Both implementations say the same, and so does a pin, which has one name more."""
    error, message = complaint(clampgrad.clamp, torch.ones(1), 0, gradient=wrong)
    assert (error, message) == (ValueError, unknown_gradient_message(wrong))
    assert all(name in message for name in (*CONVENTIONS, *ALIASES))
    assert message.partition("; did you mean ")[2] == (f"{MEANT[wrong]}?" if MEANT[wrong] else "")
    assert complaint(clampgrad.pin, wrong) == (
        ValueError,
        unknown_gradient_message(wrong, "installed"),
    )


def test_a_pin_may_have_been_meant_to_be_that_of_the_release():
    with pytest.raises(ValueError, match="or installed; did you mean 'installed'"):
        clampgrad.pin("instaled")


@pytest.mark.compiled("the portable implementation is the module that is gone")
@pytest.mark.parametrize("table", [None, types.ModuleType("emptied")])
def test_an_unknown_convention_is_an_error_without_python(monkeypatch, table):
    """While Python ends, or once its modules are purged, the error does not say what was meant."""
    monkeypatch.setitem(sys.modules, "clampgrad._contract.table", table)
    expected = "unknown gradient 'nope'; expected one of min_norm, incl"
    with pytest.raises(ValueError, match=expected):
        clampgrad.clamp(torch.ones(1), 0, gradient="nope")
    monkeypatch.delitem(sys.modules, "clampgrad._contract.table")
    with pytest.raises(ValueError, match=expected):
        clampgrad.clamp(torch.ones(1), 0, gradient="nope")
    assert "clampgrad._contract.table" not in sys.modules


class Text(str):
    pass


class Name(str, enum.Enum):
    JAX = "jax"


class NotText(enum.Enum):
    half = "half"


NAMED = {
    **{name: partial(getattr(clampgrad, name), torch.ones(1), 0) for name in NAMES},
    **{name: partial(getattr(clampgrad, name), torch.ones(1)) for name in ACTIVATIONS},
    **{name: partial(getattr(clampgrad, name), torch.ones(1), torch.ones(1)) for name in EXTREMA},
    "out": partial(clampgrad.clamp, torch.ones(1), 0, 1, out=torch.empty(1)),
    "recorded": partial(clampgrad.clamp, torch.ones(1, requires_grad=True), 0, 1),
    "nn.Clamp": partial(clampgrad.nn.Clamp, 0, 1),
    **{f"nn.{name}": getattr(clampgrad.nn, name) for name in ("Hardtanh", "ReLU", "ReLU6")},
    "set_gradient": partial(clampgrad.nn.set_gradient, torch.nn.ReLU()),
    "pin": clampgrad.pin,
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_a_str(name):
    for wrong in (b"half", bytearray(b"half"), NotText.half, 1, True, ["half"], object()):
        with pytest.raises(TypeError, match=f"gradient must be a str, not {type(wrong).__name__}"):
            NAMED[name](gradient=wrong)
    if name != "pin":  # where None is torch's own
        with pytest.raises(TypeError, match="gradient must be a str, not NoneType"):
            NAMED[name](gradient=None)
    for wrong in ("", "HALF", "half\n", "\uff48alf", "\ud800", "half" * 1000):
        with pytest.raises(ValueError, match="(?s)unknown gradient '.*'; expected .*half"):
            NAMED[name](gradient=wrong)
    for right in (Text("half"), Name.JAX, "jax"):
        result = NAMED[name](gradient=right)
        assert repr(result) == repr(NAMED[name](gradient="half"))


@pytest.mark.parametrize("context", [lambda f: f, torch.func.grad], ids=["eager", "torch.func"])
@pytest.mark.parametrize("gradient", ["half", "with_grad"])
def test_what_torch_refuses_it_refuses_under_a_pin(gradient, context):
    for call in (
        lambda x: torch.clamp_(x, torch.zeros(2, 3)),  # the result would not fit
        lambda x: torch.clamp_min_(x, torch.zeros(3, 3)),
        lambda x: torch.clamp(x, None, None),
        # No gradient is recorded for these, so the call goes back to torch,
        # and must not come here again.
        lambda x: torch.clamp(x, 0, 1j),
        lambda x: torch.clamp_min(x, 1j),
        lambda x: x.clamp_(1j),
        lambda x: torch.clamp(x, torch.full((3,), 1j)),
    ):
        function = context(lambda x: call(x * 1).sum())  # noqa: B023
        x = torch.ones(3, requires_grad=context is not torch.func.grad)
        expected = complaint(function, x)
        with clampgrad.pin(gradient):
            assert complaint(function, x) == expected


def test_texts_with_arguments_are_the_same_in_both_implementations():
    x = torch.ones(3, requires_grad=True)
    for call, name, arguments in (
        (lambda: clampgrad.clamp(x, 0, gradient="half", maximize=True), "kMaximizeDoesNotApply", ["half"]),
        (lambda: clampgrad.fmax(x, x, gradient="with_grad"), "kForClampsOnly", ["with_grad", "fmax"]),
    ):  # fmt: skip
        assert complaint(call) == (ValueError, MESSAGES[name].format(*arguments))


@pytest.mark.parametrize("name", [*BOUNDS, *EXTREMA])
def test_arguments_that_are_no_tensors(name):
    """What torch's function takes or refuses, ours does, whether or not a gradient is asked for."""
    for args in product(
        (torch.ones(3), torch.ones(3, requires_grad=True), None, "1", [1.0]), repeat=2
    ):
        expected, actual = (result_or_error(getattr(of, name), *args) for of in (torch, clampgrad))
        if isinstance(expected, tuple):
            assert actual[0] is expected[0], args
        else:
            assert_same(actual.detach(), expected.detach())


@pytest.mark.parametrize("function", ["clamp", "clamp_"])
@pytest.mark.parametrize(
    "bounds", [(0j, None), (None, 1 + 0j), (0, 1 + 0j), (0j, 1), (0, 1j)], ids=str
)
def test_a_complex_number(function, bounds):
    """One without an imaginary part passes torch's forward and fails in its backward."""
    x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)

    def gradient(module):
        return torch.autograd.grad(getattr(module, function)(x * 1, *bounds).sum(), x)

    assert complaint(gradient, clampgrad) == complaint(gradient, torch)


def value_or_error(f, *args):
    try:
        value = f(*args)
    except (RuntimeError, OverflowError) as error:
        # A GPU computes in float what has 16 bits, and each operator names one of the two.
        if torch.get_default_device().type == "cuda":
            return re.sub(r"to type \S+", "to a type", str(error))
        return str(error)
    values = None if value.is_meta or isinstance(value, FakeTensor) else repr(value.tolist())
    return value.dtype, value.shape, values


MADE = {
    "elements": partial(torch.tensor, [-1.0, 0.0, 2.0, torch.nan]),
    "none": partial(torch.zeros, 0),
    "meta": partial(torch.zeros, 3, device="meta"),
    "fake": partial(torch.zeros, 3),
}


@pytest.mark.of_kernels(
    "torch's own forward is that of the CPU, which refuses bounds that a GPU takes"
)
@pytest.mark.parametrize("dtype, where", sample_if_portable(6, product(DTYPES, MADE)), ids=str)
def test_torch_judges_a_bound_that_overflows_where_a_gradient_is_recorded_too(dtype, where):
    """Beside a NaN, and where there are no values, it is no error."""
    numbers = (torch.nan, 1e300, -1e300, 7e4, 2**70, torch.inf, 0.5)
    bounds = [*product(numbers, numbers)]
    if where != "meta":  # of one device
        bounds += [pair for n in numbers for pair in ((torch.zeros(()), n), (n, torch.zeros(())))]
    with FakeTensorMode(allow_non_fake_inputs=True) if where == "fake" else nullcontext():
        x = MADE[where](dtype=dtype)
        for pair, convention in product(bounds, ("min_norm", "inclusive", "with_grad")):
            expected = value_or_error(forward, "clamp", (x, *pair))

            def clamp(x):
                return clampgrad.clamp(x, *pair, gradient=convention)

            assert value_or_error(clamp, x.clone().requires_grad_()) == expected, pair
            assert value_or_error(lambda: torch.func.vjp(clamp, x)[0]) == expected, pair


def odd_bounds():
    yield from (True, 2**62, 2**70, -(2**70), 1j, 0.5 + 0j, "0", b"0", [0], (0,), {}, object())
    yield from (torch.nan, torch.inf, 1e308, 1e-320, torch.float32, torch.Size([1]))
    numpy = pytest.importorskip("numpy")
    yield from (numpy.float32(0.1), numpy.float64(0.1), numpy.int8(1), numpy.bool_(True))
    yield numpy.array([0.5])


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("operator", CLAMPS)
def test_what_counts_as_a_number_is_what_torch_counts(operator, recorded):
    x = torch.tensor([-1.0, 0.1, 2.0], requires_grad=recorded)
    for bound in odd_bounds():
        expected, actual = (
            result_or_error(getattr(m, operator), x, bound) for m in (torch, clampgrad)
        )
        if isinstance(expected, tuple):
            assert actual[0] is expected[0], bound
        else:
            assert_same(actual.detach(), expected.detach(), bound)


OUTS = {
    "right": lambda: torch.empty(2),
    "wider": lambda: torch.empty(2, dtype=torch.float64),
    "narrower": lambda: torch.empty(2, dtype=torch.float16),
    "integer": lambda: torch.empty(2, dtype=torch.int64),
    "recorded": lambda: torch.empty(2).requires_grad_(),
    "on another device": lambda: torch.empty(2, device="meta"),
    "shared memory": lambda: torch.empty(1).expand(2),
}


@pytest.mark.parametrize("name", OUTS)
@pytest.mark.parametrize("operator", CLAMPS)
def test_out_has_the_rules_of_torch(operator, name):
    """It carries no gradient."""
    functions = getattr(torch, operator), getattr(torch.ops.clampgrad, operator).out
    for recorded in (True,) if name == "right" else (False, True):
        x = torch.tensor([-1.0, 2.0], requires_grad=recorded)
        expected, *actual = (
            complaint(function, x, *BOUNDS[operator], out=OUTS[name]())
            for function in (*functions, getattr(clampgrad, operator))
        )
        assert actual == [expected] * 2


def test_maximize_is_a_bool():
    x = torch.ones(1)
    clampgrad.clamp(x, 0, 1, gradient="with_grad", maximize=True)
    for maximize in (1, 1.0):
        with pytest.raises(TypeError):
            clampgrad.clamp(x, 0, 1, gradient="with_grad", maximize=maximize)


@pytest.mark.parametrize("name", [*ACTIVATIONS, *CLAMPS])
def test_what_is_no_tensor_is_a_type_error(name):
    with pytest.raises(TypeError):
        getattr(clampgrad, name)([1.0], *BOUNDS.get(name, ()))


@pytest.mark.compiled("clamp_mingrad_backward is an operator of its own there alone")
@pytest.mark.parametrize("kind", ["recorded", "constant", "meta", "float64 under vmap"])
def test_a_backward_without_a_bound(kind):
    backward = torch.ops.clampgrad.clamp_mingrad_backward
    x = torch.ones(3, device="meta" if kind == "meta" else None)
    if kind == "recorded":
        x.requires_grad_()
    if "vmap" in kind:
        x, backward = x.double(), torch.vmap(backward)
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        backward(x, x)
