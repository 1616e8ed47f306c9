"""Every form refuses what torch's own operator refuses, with an error of its kind, and
leaves its input unchanged."""

from functools import partial
from itertools import product

import pytest
import torch

import clampgrad
from oracle import CLAMPS, CONVENTIONS, EXTREMA, PSEUDO
from testing.comparing import BOUNDS, assert_same, result_or_error


def overlapping(t):
    buffer = t(torch.linspace(-2, 2, 4))
    return buffer[:3], buffer[1:]


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(3)


# x and a bound, of tensors that `t` lets autograd record or not; fresh ones each time.
BAD = {
    "shapes that do not broadcast": lambda t: (t(torch.zeros(3)), t(torch.zeros(2))),
    "a bound of more dimensions": lambda t: (t(torch.zeros(3)), t(torch.ones(2, 3))),
    "a bound of a wider dtype": lambda t: (t(torch.zeros(3).half()), t(torch.ones(3))),
    "an integer x, a float Tensor": lambda t: (torch.arange(3), t(torch.ones(3))),
    "an integer x, a float number": lambda t: (torch.arange(3), 0.5),
    "a number that overflows": lambda t: (torch.ones(3, dtype=torch.int8), 1000),
    "complex x": lambda t: (t(torch.zeros(3) * 1j), 0),
    "float8": lambda t: (t(torch.ones(3).to(torch.float8_e4m3fn)), 0),
    "sparse": lambda t: (t(torch.eye(3).to_sparse()), 0),
    "a complex Tensor": lambda t: (t(torch.zeros(3)), torch.zeros(3) * 1j),
    "a complex number": lambda t: (t(torch.zeros(3)), 1j),
    "bool x": lambda t: (torch.zeros(3, dtype=torch.bool), 0),
    "another device": lambda t: (t(torch.zeros(3)), t(torch.zeros(3, device="meta"))),
    "a string": lambda t: (t(torch.zeros(3)), "0"),
    "x overlaps itself": lambda t: (t(torch.zeros(1)).expand(3), 1),
    "x overlaps itself, a Tensor": lambda t: (t(torch.zeros(1)).expand(3), torch.ones(3)),
    "x overlaps the bound in part": overlapping,
    "x is the bound": lambda t: (t(torch.linspace(-1, 1, 3)),) * 2,
    "a leaf": lambda t: (torch.zeros(3, requires_grad=True), 1),
    "a view of a leaf": lambda t: (torch.zeros(3, requires_grad=True)[:1], 1),
    "an inference tensor": lambda t: (inference_tensor(), 0),
}
# Refused in torch's own words.
IN_WORDS = ["complex x", "float8", "sparse", "a leaf", "a view of a leaf", "x overlaps itself"]
IN_WORDS += ["an integer x, a float number"]


def recorded(tensor):
    return tensor.requires_grad_().clone()


def plain(tensor):
    return tensor


def pinned(function, convention):
    def call(*args):
        with clampgrad.pin(convention):
            return function(*args)

    return call


def doors(operator, in_place, convention):
    """(ours, torch's own) for each way to call."""
    name, more = operator + "_" * in_place, {"gradient": convention}
    torch_function, ops = getattr(torch, name), torch.ops.clampgrad
    yield "function", partial(getattr(clampgrad, name), **more), torch_function
    yield "torch.ops", partial(getattr(ops, name), **more), torch_function
    yield "pinned", pinned(getattr(torch.Tensor, name), convention), torch_function
    if convention == "min_norm":
        yield "mingrad", getattr(ops, f"{operator}_mingrad" + "_" * in_place), torch_function


def called(call, x, *bounds):
    """The outcome of a call, which must leave x unchanged if it is an error."""
    before = str(x.detach())  # not every kind of tensor compares
    result = result_or_error(call, x, *bounds)
    if isinstance(result, tuple) and not x.is_inference():
        # torch writes these first, and raises when it counts the version.
        assert str(x.detach()) == before, f"x changed before the error: {result}"
    return result


KINDS = {RuntimeError, NotImplementedError}


def of_kernels(name, names):
    """What devices without kernels of ours may lack, or take."""
    mark = pytest.mark.of_kernels("torch may not have it there, or write a copy")
    return [pytest.param(n, marks=mark) if n == name else n for n in names]


@pytest.mark.parametrize("in_place", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("make", [plain, recorded])
@pytest.mark.parametrize("bad", of_kernels("sparse", BAD))
def test_refused_in_kind(bad, make, in_place):
    for operator, convention in product(CLAMPS, ("min_norm", "half", "with_grad")):
        for door, function, torch_function in doors(operator, in_place, convention):
            results = []
            for call in (torch_function, function):
                x, bound = BAD[bad](make)
                results.append(called(call, x, *[bound] * len(BOUNDS[operator])))
            expected, got = results
            where = f"{door}, {operator}, {convention}: {got} instead of {expected}"
            assert type(got) is type(expected), where
            if not isinstance(expected, tuple):
                assert_same(got.detach(), expected.detach())
            elif door not in ("torch.ops", "mingrad"):  # those parse arguments their own way
                kinds = {got[0], expected[0]}
                assert len(kinds) == 1 or kinds <= KINDS, where
                assert bad not in IN_WORDS or got == expected, where


IN_PLACE = ["shapes that do not broadcast", "a bound of more dimensions", "a leaf"]
IN_PLACE += ["a view of a leaf", "x overlaps itself, a Tensor", "x overlaps the bound in part"]


@pytest.mark.parametrize("make", [plain, recorded])
@pytest.mark.parametrize("bad", of_kernels("x overlaps the bound in part", IN_PLACE))
def test_refused_in_place_beside_a_number(bad, make):
    """torch has no operator for it."""
    for convention, number_first in product(CONVENTIONS, (False, True)):
        x, bound = BAD[bad](make)
        bound = torch.as_tensor(bound, dtype=x.dtype)
        before, version = x.tolist(), x._version
        with pytest.raises(RuntimeError):
            clampgrad.clamp_(x, *((-5, bound) if number_first else (bound, 5)), gradient=convention)
        assert (x.tolist(), x._version) == (before, version)


def test_integers_in_place_beside_a_number():
    """As clamp_ between two Tensors: a result of floats is not cast to x."""
    for bounds in ((torch.full((3,), 0.5), 1), (0, torch.full((3,), 1.5)), (0.5, torch.ones(3))):
        x = torch.arange(3)
        with pytest.raises(RuntimeError) as torch_error:
            x.clamp_(*map(torch.as_tensor, bounds))
        with pytest.raises(RuntimeError) as error:
            clampgrad.clamp_(x, *bounds)
        assert str(error.value) == str(torch_error.value) and x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("operator", ["clamp", "clamp_"])
def test_no_bound_is_the_error_of_torch(operator):
    for recorded, module in product((False, True), (torch, clampgrad, torch.ops.clampgrad)):
        x = torch.ones(3, requires_grad=recorded) * 1
        with pytest.raises(RuntimeError, match="At least one"):
            getattr(module, operator)(x)


READABLE = (0, torch.zeros(2), torch.zeros(2, dtype=torch.int64))
WRONG = {  # the error, and what it says
    ("least_norm", False): (ValueError, "unknown gradient 'least_norm'"),
    ("", False): (ValueError, "unknown gradient ''"),
    ("half", True): (ValueError, "maximize=True does not apply to gradient='half'"),
    (1, False): (TypeError, "gradient must be a str, not int"),
}


@pytest.mark.parametrize("name, maximize", WRONG)
def test_a_wrong_name_is_refused_whatever_the_arguments(name, maximize):
    """It is reported before a wrong bound or a wrong input."""
    error, text = WRONG[name, maximize]
    more = {"gradient": name} | ({"maximize": True} if maximize else {})
    operators = [op + suffix for op in CLAMPS for suffix in ("", "_")]
    for operator in operators if maximize else [*operators, *EXTREMA]:
        xs = torch.ones(2), torch.ones(2, requires_grad=True) * 1, torch.arange(2)
        for x, bound in product((*xs, object()), (*READABLE, "0", [0], 10**25, object())):
            with pytest.raises(error, match=text):
                getattr(clampgrad, operator)(x, bound, **more)
        of_the_packet = READABLE if operator.startswith("clamp") else READABLE[1:]
        for x, bound in product(xs, of_the_packet if isinstance(name, str) else ()):
            with pytest.raises(ValueError):
                getattr(torch.ops.clampgrad, operator)(x, bound, **more)


@pytest.mark.parametrize("name", PSEUDO)
@pytest.mark.parametrize("operator", EXTREMA)
def test_no_interval_to_be_outside_of(operator, name):
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        for namespace in (clampgrad, torch.ops.clampgrad):
            with pytest.raises(ValueError, match=name):
                getattr(namespace, operator)(x, torch.ones(2), gradient=name)
        with pytest.raises(RuntimeError, match="maximize"):  # which could never be legal
            getattr(torch.ops.clampgrad, operator)(x, torch.ones(2), maximize=False)


@pytest.mark.of_kernels("compositions save no bits")
def test_hooks_that_lose_bits_are_refused():
    """A hook must return what it was given: bits are never misread."""
    spoil = {
        "shorter": lambda t: t[:-1],
        "one": lambda t: t[:1],
        "longer": lambda t: torch.cat((t, t)),
        "cast": lambda t: t.float(),
        "with gaps": lambda t: torch.stack((t, t), 1)[:, 0],
    }
    calls = [
        lambda x: clampgrad.clamp(x, 0, 1, gradient="half"),
        lambda x: clampgrad.maximum(x, torch.zeros(65)),
        lambda x: clampgrad.clamp(x, torch.zeros(65), torch.ones(65)),
    ]
    if clampgrad.implementation == "compiled":  # otherwise torch.where saves a mask
        calls.append(lambda x: clampgrad.clamp(x, 0, 1))
    for (name, unpack), call in product(spoil.items(), calls):
        x = torch.linspace(-1, 2, 65, requires_grad=True)
        hooks = lambda t: t, lambda t: unpack(t) if t.dtype == torch.uint8 else t  # noqa: B023
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            y = call(x)
        if name == "with gaps" and clampgrad.implementation == "portable":
            # It reads elements, not memory, and the elements are the same.
            (expected,) = torch.autograd.grad(call(x).sum(), x)
            assert torch.equal(torch.autograd.grad(y.sum(), x)[0], expected)
            continue
        with pytest.raises(RuntimeError, match="saved-tensor hook|saved"):
            torch.autograd.grad(y.sum(), x)
