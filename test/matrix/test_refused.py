"""What torch's own operator refuses, every form refuses in kind, and leaves its input as it was."""

import pytest
import torch

import clampgrad


def overlapping(t):
    buffer = t(torch.linspace(-2, 2, 4))
    return buffer[:3], buffer[1:]


def twice(tensor):
    return tensor, tensor


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
    "a complex Tensor": lambda t: (t(torch.zeros(3)), torch.zeros(3) * 1j),
    "a complex number": lambda t: (t(torch.zeros(3)), 1j),
    "bool x": lambda t: (torch.zeros(3, dtype=torch.bool), 0),
    "another device": lambda t: (t(torch.zeros(3)), t(torch.zeros(3, device="meta"))),
    "a string": lambda t: (t(torch.zeros(3)), "0"),
    "x overlaps itself": lambda t: (t(torch.zeros(1)).expand(3), 1),
    "x overlaps itself, a Tensor": lambda t: (t(torch.zeros(1)).expand(3), torch.ones(3)),
    "x overlaps the bound in part": lambda t: overlapping(t),
    "x is the bound": lambda t: twice(t(torch.linspace(-1, 1, 3))),
    "a leaf": lambda t: (t(torch.zeros(3)).detach().requires_grad_(), 1),
    "an inference tensor": lambda t: (inference_tensor(), 0),
}


def recorded(tensor):
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return tensor.requires_grad_() * 1 if floating else tensor


def plain(tensor):
    return tensor


def pinned(function, convention):
    def call(*args):
        with clampgrad.pin(convention):
            return function(*args)

    return call


def doors(operator, in_place, convention):
    """(ours, torch's own) for each way to call."""
    name = operator + ("_" if in_place else "")
    theirs = getattr(torch, name)
    yield "function", lambda *a: getattr(clampgrad, name)(*a, gradient=convention), theirs
    yield (
        "torch.ops",
        lambda *a: getattr(torch.ops.clampgrad, name)(*a, gradient=convention),
        theirs,
    )
    yield "pinned", pinned(getattr(torch.Tensor, name), convention), theirs
    if convention == "min_norm":
        yield (
            "mingrad",
            getattr(torch.ops.clampgrad, f"{operator}_mingrad" + "_" * in_place),
            theirs,
        )


def outcome(call, x, bound):
    """The result, or the kind of error; x is as it was where there is an error."""
    before = x.detach().clone()
    try:
        return call(x, bound).detach(), None
    except Exception as e:
        if not x.is_inference():  # torch writes first, and complains when it counts the version
            assert torch.equal(x.detach(), before), f"x changed before the error: {e}"
        return None, type(e)


KINDS = {RuntimeError, NotImplementedError}


@pytest.mark.parametrize("in_place", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("make", [plain, recorded])
@pytest.mark.parametrize("bad", BAD)
def test_refused_in_kind(bad, make, in_place):
    for operator in ("clamp_min", "clamp_max"):
        for convention in ("min_norm", "half", "with_grad"):
            for door, ours, theirs in doors(operator, in_place, convention):
                value, error = outcome(theirs, *BAD[bad](make))
                got, wrong = outcome(ours, *BAD[bad](make))
                where = f"{door}, {operator}, {convention}: {wrong} instead of {error}"
                assert (wrong is None) == (error is None), where
                if error is None:
                    torch.testing.assert_close(got, value, rtol=0, atol=0)
                elif door not in ("torch.ops", "mingrad"):  # those parse arguments their own way
                    assert wrong is error or {wrong, error} <= KINDS, where


@pytest.mark.parametrize("operator", ["clamp", "clamp_"])
def test_no_bound_is_the_error_of_torch(operator):
    for recorded in (False, True):
        x = torch.ones(3, requires_grad=recorded) * 1
        with pytest.raises(RuntimeError, match="At least one"):
            getattr(torch, operator)(x)
        with pytest.raises(RuntimeError, match="At least one"):
            getattr(clampgrad, operator)(x)
        with pytest.raises(RuntimeError, match="At least one"):
            getattr(torch.ops.clampgrad, operator)(x)


@pytest.mark.parametrize("name, maximize", [("least_norm", False), ("half", True), ("", False)])
def test_a_wrong_name_is_refused_whatever_the_arguments(name, maximize):
    for x in (torch.ones(2), torch.ones(2, requires_grad=True), torch.arange(2)):
        for bound in (0, torch.zeros(2), torch.zeros(2, dtype=torch.int64)):
            for function in (
                clampgrad.clamp_min,
                clampgrad.clamp_max_,
                torch.ops.clampgrad.clamp_min,
            ):
                with pytest.raises(ValueError):
                    function(x.clone(), bound, gradient=name, maximize=maximize)


@pytest.mark.parametrize("name", ["with_grad", "restoring", "straight_through"])
@pytest.mark.parametrize("operator", ["maximum", "minimum", "fmax", "fmin"])
def test_no_interval_to_be_outside_of(operator, name):
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        for namespace in (clampgrad, torch.ops.clampgrad):
            with pytest.raises(ValueError, match=name):
                getattr(namespace, operator)(x, torch.ones(2), gradient=name)


def test_hooks_that_lose_bits_are_refused():
    """What comes back must be what was given: never a misread gradient."""
    spoil = {
        "shorter": lambda t: t[:-1],
        "one": lambda t: t[:1],
        "longer": lambda t: torch.cat((t, t)),
        "cast": lambda t: t.float(),
        "with gaps": lambda t: torch.stack((t, t), 1)[:, 0],
    }
    calls = {
        "numbers": lambda x: clampgrad.clamp(x, 0, 1),
        "pair": lambda x: clampgrad.maximum(x, torch.zeros(65)),
        "triple": lambda x: clampgrad.clamp(x, torch.zeros(65), torch.ones(65)),
    }
    for name, unpack in spoil.items():
        for call in calls.values():
            x = torch.linspace(-1, 2, 65, requires_grad=True)
            unpack_bytes = lambda t: unpack(t) if t.dtype == torch.uint8 else t  # noqa: E731, B023
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack_bytes):
                y = call(x)
            if name == "with gaps" and clampgrad.implementation == "portable":
                # It does not look at memory, but at elements, which these are.
                (wanted,) = torch.autograd.grad(call(x).sum(), x)
                assert torch.equal(torch.autograd.grad(y.sum(), x)[0], wanted)
                continue
            with pytest.raises(RuntimeError, match="saved-tensor hook|saved"):
                torch.autograd.grad(y.sum(), x)
