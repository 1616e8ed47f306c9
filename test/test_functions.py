"""The functions themselves, compiled or not: what they are called with, and what they say about themselves."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import torch

import clampgrad
from clampgrad import _implementation

OF_CLAMP = "gradient='min_norm', maximize=False"
SIGNATURES = {
    "clamp": f"(input, min=None, max=None, *, {OF_CLAMP}, out=None)",
    "clamp_": f"(input, min=None, max=None, *, {OF_CLAMP})",
    "clamp_min": f"(input, min, *, {OF_CLAMP}, out=None)",
    "clamp_min_": f"(input, min, *, {OF_CLAMP})",
    "clamp_max": f"(input, max, *, {OF_CLAMP}, out=None)",
    "clamp_max_": f"(input, max, *, {OF_CLAMP})",
    **dict.fromkeys(
        ("maximum", "minimum", "fmax", "fmin"), "(input, other, *, gradient='min_norm', out=None)"
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_what_a_function_says_about_itself(name):
    function = getattr(clampgrad, name)
    found = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]
    assert function.__doc__ and "clamp_min" in (clampgrad.functional.clamp_min_.__doc__ or "")
    assert (function.__module__, function.__name__) == ("clampgrad.functional", name)
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function


@pytest.mark.compiled("it is about them")
def test_there_is_nothing_between_a_call_and_the_compiled_function():
    for name in SIGNATURES:
        assert getattr(clampgrad, name) is getattr(_implementation, name)
        assert inspect.isbuiltin(getattr(clampgrad, name))


def arguments(name):
    """Positional, and all by keyword."""
    x, bound = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 2.0, 1.0])
    values = {"input": x, "min": bound, "max": bound + 1, "other": bound}
    given = {
        n: values[n].clone()
        for n in inspect.signature(getattr(clampgrad, name)).parameters
        if n in values
    }
    return list(given.values()), given


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_argument_has_a_keyword(name):
    function = getattr(clampgrad, name)
    positional, keywords = arguments(name)
    expected = function(*[v.clone() for v in positional])
    first = keywords.pop("input")
    assert torch.equal(function(input=first.clone(), **keywords), expected)
    assert torch.equal(function(first.clone(), **dict(reversed(keywords.items()))), expected)


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_that_do_not_fit(name):
    function = getattr(clampgrad, name)
    positional, keywords = arguments(name)
    before = positional[0].clone()
    last = list(keywords)[-1]
    wrong = {
        "unexpected keyword argument 'bound'": lambda: function(*positional, bound=1),
        "unexpected keyword argument 'x'": lambda: function(
            x=positional[0], **dict(list(keywords.items())[1:])
        ),
        f"multiple values for argument '{last}'": lambda: function(*positional, **{last: 1}),
        "multiple values for argument 'input'": lambda: function(*positional, input=positional[0]),
        "positional arguments": lambda: function(*positional, 1),
        "missing [12] required positional argument": lambda: function(*positional[1:0]),
    }
    if name.endswith("_"):
        wrong["unexpected keyword argument 'out'"] = lambda: function(
            *positional, out=torch.ones(3)
        )
    if not name.startswith("clamp"):
        wrong["unexpected keyword argument 'maximize'"] = lambda: function(
            *positional, maximize=True
        )
    for message, call in wrong.items():
        with pytest.raises(TypeError, match=message):
            call()
    assert torch.equal(positional[0], before)


UNREADABLE = {"text": "0", "a list": [0], "beyond any integer": 10**25, "an object": object()}


@pytest.mark.parametrize("bound", UNREADABLE)
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_wrong_name_is_said_before_a_wrong_bound(name, bound):
    function, bound = getattr(clampgrad, name), UNREADABLE[bound]
    for x in (torch.ones(2), torch.ones(2, requires_grad=True) * 1, object()):
        with pytest.raises(ValueError, match="unknown gradient 'nothing'"):
            function(x, bound, gradient="nothing")
        with pytest.raises(TypeError, match="gradient must be a str, not int"):
            function(x, bound, gradient=1)
        if name.startswith("clamp"):
            with pytest.raises(ValueError, match="maximize=True does not apply to gradient='half'"):
                function(x, bound, gradient="half", maximize=True)


def test_dynamo_may_come_first():
    """torch.compile learns what to trace when both are there, in whichever order they are imported."""
    code = """
import torch, torch._dynamo, clampgrad
f = torch.compile(lambda x: clampgrad.clamp(x, 0, max=1), backend="aot_eager", fullgraph=True)
x = torch.tensor([-1.0, 0.0, 0.5, 1.0], requires_grad=True)
f(x).sum().backward()
assert x.grad.tolist() == [0, 0, 1, 0], x.grad
"""
    subprocess.run([sys.executable, "-c", code], check=True)
