"""The functions themselves, compiled or not: their arguments, signatures and documentation."""

import copy
import inspect
import pickle
import pydoc
import re
from functools import partial, wraps

import pytest
import torch

import clampgrad
from clampgrad import _implementation
from oracle import EXTREMA, TABLE
from testing.cases import sample_if_portable
from testing.processes import python
from testing.releases import RELEASE

OF_CLAMP = "gradient='min_norm', maximize=False"
SIGNATURES = {
    "clamp": f"(input, min=None, max=None, *, {OF_CLAMP}, out=None)",
    "clamp_": f"(input, min=None, max=None, *, {OF_CLAMP})",
    "clamp_min": f"(input, min, *, {OF_CLAMP}, out=None)",
    "clamp_min_": f"(input, min, *, {OF_CLAMP})",
    "clamp_max": f"(input, max, *, {OF_CLAMP}, out=None)",
    "clamp_max_": f"(input, max, *, {OF_CLAMP})",
}
SIGNATURES |= dict.fromkeys(EXTREMA, "(input, other, *, gradient='min_norm', out=None)")


every_function = pytest.mark.parametrize("name", SIGNATURES)


@every_function
def test_what_a_function_says_about_itself(name):
    function = getattr(clampgrad, name)
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]
    assert "Args:" in function.__doc__ or ":func:`" in function.__doc__  # the one that has them
    assert (function.__module__, function.__name__) == ("clampgrad.functional", name)
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function


def test_help_lists_the_conventions():
    text = pydoc.render_doc(clampgrad.clamp, renderer=pydoc.plaintext)
    for name, rule in TABLE["conventions"].items():
        assert re.search(rf"- ``{name}``.*: {re.escape(rule)}", text), name
    for alias, name in TABLE["aliases"].items():
        assert f"``{name}`` or ``{alias}``" in text


@pytest.mark.compiled("it is about them")
def test_there_is_nothing_between_a_call_and_the_compiled_function():
    for name in SIGNATURES:
        assert getattr(clampgrad, name) is getattr(_implementation, name)
        assert inspect.isbuiltin(getattr(clampgrad, name))


def arguments(name):
    """Positional, and all by keyword."""
    bound = torch.tensor([0.0, 2.0, 1.0])
    values = {"input": torch.arange(3.0), "min": bound, "max": bound + 1, "other": bound.clone()}
    names = inspect.signature(getattr(clampgrad, name)).parameters
    given = {n: values[n] for n in names if n in values}
    return list(given.values()), given


@every_function
def test_every_argument_has_a_keyword(name):
    function = getattr(clampgrad, name)
    positional, keywords = arguments(name)
    expected = function(*[v.clone() for v in positional])
    first = keywords.pop("input")
    assert torch.equal(function(input=first.clone(), **keywords), expected)
    assert torch.equal(function(first.clone(), **dict(reversed(keywords.items()))), expected)


@every_function
def test_arguments_that_do_not_fit(name):
    function = getattr(clampgrad, name)
    positional, keywords = arguments(name)
    before = positional[0].clone()
    last = list(keywords)[-1]
    x, by_name = positional[0], dict(list(keywords.items())[1:])
    wrong = {
        "unexpected keyword argument 'bound'": lambda: function(*positional, bound=1),
        "unexpected keyword argument 'x'": lambda: function(x=x, **by_name),
        f"multiple values for argument '{last}'": lambda: function(*positional, **{last: 1}),
        "multiple values for argument 'input'": lambda: function(*positional, input=x),
        "positional arguments": lambda: function(*positional, 1),
        "missing [12] required positional argument": lambda: function(),
    }
    refused = {"out": torch.ones(3)} if name.endswith("_") else {}
    refused |= {} if name.startswith("clamp") else {"maximize": True}
    for word, value in refused.items():
        message = f"unexpected keyword argument '{word}'"
        wrong[message] = partial(function, *positional, **{word: value})
    for message, call in wrong.items():
        with pytest.raises(TypeError, match=message):
            call()
    assert torch.equal(positional[0], before)


X = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])


REGISTRY = {clampgrad.clamp: 2, clampgrad.clamp_min: 3}

# Programs also pass a function as an argument, keep it in a registry, and map it.
USES = {
    "in a registry": lambda x: REGISTRY[clampgrad.clamp_min] * x + (clampgrad.clamp in REGISTRY),
    "vmap": lambda x: torch.vmap(clampgrad.maximum)(x, -x),
    "vmap of a partial": lambda x: torch.vmap(partial(clampgrad.clamp, min=0, max=1))(x),
    "vmap with numbers": lambda x: torch.vmap(clampgrad.clamp, in_dims=(0, None, None))(x, 0, 1),
    "wrapped": lambda x: wraps(clampgrad.clamp)(lambda *a: clampgrad.clamp(*a))(x, 0, 1),
}


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("use", USES)
def test_uses_in_one_graph(use, forgotten):
    """Even after torch has forgotten its rules, as it does when a process group is initialized."""
    if forgotten:
        torch._dynamo.trace_rules.clear_lru_cache()
        torch._dynamo.reset()
    actual = torch.compile(USES[use], backend="eager", fullgraph=True)(X)
    assert torch.equal(actual, USES[use](X))


class Times(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 100 if func is clampgrad.clamp else result


class Overrides(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result * 100 if func is clampgrad.clamp else result


@pytest.mark.compiled("there torch.compile traces operators, which an override sees instead")
def test_overrides_see_the_function_in_compiled_code_too():
    def f(x):
        return clampgrad.clamp(x, 0, max=1)

    compiled, clamped = torch.compile(f, backend="eager", fullgraph=True), X.clamp(0, 1)
    for function in (f, compiled):
        with Times():
            assert torch.equal(function(X), 100 * clamped)
        assert torch.equal(function(X.as_subclass(Overrides)), 100 * clamped)
    with torch.device("cpu"):
        assert torch.equal(compiled(X), clamped)


def test_a_function_across_a_graph_break():
    @torch.compile(backend="eager")
    def f(x):
        function = clampgrad.clamp
        torch._dynamo.graph_break()
        return function(x, 0, 1)

    assert torch.equal(f(X), X.clamp(0, 1))


AGAIN = "import importlib; importlib.reload(clampgrad.functional)"
COMPILED = """
def f(x): return clampgrad.functional.clamp(x, 0, max=1)
x = torch.tensor([-1.0, 0.0, 0.5, 1.0], requires_grad=True)
torch.compile(f, backend="eager", fullgraph=True)(x).sum().backward()
if x.grad.tolist() != [0, 0, 1, 0]:
    raise SystemExit(1)
"""


@pytest.mark.parametrize(
    "imports, flags",
    [
        *sample_if_portable(
            1,
            [
                ("import torch, torch._dynamo, clampgrad", []),
                (f"import torch, clampgrad; {AGAIN}", []),
            ],
        ),
        pytest.param(
            f"import torch, torch._dynamo, clampgrad; {AGAIN}",
            ["-OO"],
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(RELEASE == (2, 11), reason="Dynamo fails at any `if` under -O"),
            ],
        ),
    ],
)
def test_torch_compile_learns_what_to_trace_when_both_are_there(imports, flags):
    """In either order of import, even if ours is executed again; with docstrings or without."""
    python(*flags, "-c", imports + COMPILED)


def test_symbolic_bounds_without_dynamo():
    class Module(torch.nn.Module):
        def forward(self, x):
            return clampgrad.clamp(x, 0, x.shape[0])

    n = torch.export.Dim("n")
    exported = torch.export.export(Module(), (X,), strict=False, dynamic_shapes={"x": {0: n}})
    assert exported.module()(X[:2] + 4).tolist() == [2, 2]


@pytest.mark.parametrize("name", ["clamp", "clamp_", "maximum"])
def test_a_node_has_one_gradient(name):
    """Like torch's nodes: it is what pre-hooks get and return."""
    x = torch.tensor([0.25, 0.5], requires_grad=True)
    y = getattr(clampgrad, name)(x * 1, torch.zeros(2))
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2]


PATCHED = """
import functools
import torch
import clampgrad
from clampgrad._pin.installed import measure_convention
from clampgrad._torch.torchs_functions import EXTREMA

x = torch.tensor([-1.0, 0, 0.5, 1, 2], requires_grad=True)
zeros, ones = torch.zeros(5), torch.ones(5)
BOUNDS = {
    "clamp": [(0, 1), (zeros, ones), (0, ones), (zeros, 1)],
    "clamp_min": [(0,), (zeros,)],
    "clamp_max": [(1,), (ones,)],
}
CALLS = [(name + end, args) for name, of in BOUNDS.items() for end in ("", "_") for args in of]
CALLS += [(name, (zeros,)) for name in EXTREMA]


def outcome(function, args):
    y = function(x * 1, *args)
    plain = function(x.detach().clone(), *args)
    return y.tolist(), plain.tolist(), torch.autograd.grad(y.sum(), x)[0].tolist()


def patched(name):
    @functools.wraps(getattr(torch, name))
    def function(*args, **keywords):
        return getattr(clampgrad, name)(*args, gradient="half", **keywords)

    return function


def refuse(*args, **keywords):
    raise AssertionError("this is looked up when it is called")


ours = [
    (getattr(clampgrad, name), args, convention)
    for name, args in CALLS
    for convention in (clampgrad.CONVENTIONS if name.startswith("clamp") else clampgrad.EXACT)
]
before = [outcome(functools.partial(f, gradient=c), args) for f, args, c in ours]
with clampgrad.pin("installed"):
    own = clampgrad.pin.current()
measure_convention.cache_clear()
for name in {name for name, _ in CALLS}:
    for owner in (torch, torch.Tensor):
        if hasattr(owner, name):
            setattr(owner, name, patched(name))
for name in ("where", "max", "min", "clip", "clip_", "amax", "amin"):
    for owner in (torch, torch.Tensor):
        if hasattr(owner, name):
            setattr(owner, name, refuse)
assert [outcome(functools.partial(f, gradient=c), args) for f, args, c in ours] == before
half = [found for found, (_, _, convention) in zip(before, ours) if convention == "half"]
assert [outcome(getattr(torch, name), args) for name, args in CALLS] == half
with clampgrad.pin("installed"):
    assert clampgrad.pin.current() == own
"""


OURS_IN_F = """
import torch
import torch.nn.functional as F
import clampgrad

x = torch.tensor([-1, 0, 9])  # which torch's own function takes, as it does sparse tensors
names = "relu", "relu6", "hardtanh"
expected = [getattr(F, name)(x).tolist() for name in names]
for name in names:
    setattr(F, name, getattr(clampgrad, name))
assert [getattr(F, name)(x).tolist() for name in names] == expected
assert F.relu(x.to_sparse()).to_dense().tolist() == expected[0]
"""


@pytest.mark.parametrize("program", [PATCHED, OURS_IN_F], ids=["torch", "torch.nn.functional"])
def test_torchs_functions_are_those_of_the_import(program):
    """A program may put ours in their place, or others."""
    python("-c", program)
