"""Shared by several test files: processes, ways to differentiate, and comparing."""

import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import MappingKey, tree_flatten_with_path

import clampgrad
from clampgrad._implementation import build
from oracle import TABLE

RELEASE = tuple(int(n) for n in torch.__version__.split(".")[:2])  # as text, 2.9 is beyond 2.14
# By the last release so far that has a convention, as the aliases say
# (torch_2_13); and that of this release.
LAST = {tuple(map(int, a.split("_")[1:])): c for a, c in TABLE["aliases"].items() if "torch" in a}
RELEASED = LAST[min((last for last in LAST if last >= RELEASE), default=max(LAST))]
# fmax and fmin of 2.14 pass both gradients at a NaN; v2.14.0/fmax mends it.
OF_NO_CONVENTION = RELEASE == (2, 14)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INDUCTOR = pytest.mark.of_kernels("Inductor compiles for no mock device")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BOUNDS = {"clamp": {"min": 0, "max": 1}, "clamp_min": {"min": 0}, "clamp_max": {"max": 1}}

# Every kind of call, of three Tensors of one shape.
CALLS = {
    f"clamp, {convention}": lambda x, lo, hi, c=convention: clampgrad.clamp(x, 0, 1, gradient=c)
    for convention in clampgrad.CONVENTIONS
} | {
    "clamp_": lambda x, lo, hi: clampgrad.clamp_(x + 0, 0, 1),
    "clamp with Tensors": lambda x, lo, hi: clampgrad.clamp(x, lo, hi),
    "clamp beside a number": lambda x, lo, hi: clampgrad.clamp(x, lo, 1, gradient="inclusive"),
    "clamp_mingrad": lambda x, lo, hi: torch.ops.clampgrad.clamp_mingrad(x, 0, 1),
    "maximum": lambda x, lo, hi: clampgrad.maximum(x, lo),
}


# An environment with neither home, nor programs, nor UTF-8, nor bytecode.
BARE = {
    **{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "PATH"), os.devnull),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def run(*command, **keywords):
    """A process that has ended: its exit code, what it printed, what it complained of."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **keywords)


def run_checked(*command, **keywords):
    """The output of a process that has succeeded."""
    ended = run(*command, **keywords)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


@cache
def package_path():
    """The PYTHONPATH by which a process finds the package where this one did: nothing, if
    any process does. Otherwise all that is installed beside the package would come first."""
    home = str(Path(clampgrad.__file__).parents[1])
    found = run_checked(
        sys.executable, "-Ec", "import sys; print(*sys.path, sep=chr(10))", cwd=os.sep
    )
    return [] if home in found.splitlines() else [home]


def python(*command, cwd=None, **variables):
    """The output of another Python process, which finds the package where this one did."""
    path = os.pathsep.join([*package_path(), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, **variables}
    return run_checked(sys.executable, *command, cwd=cwd, env=env)


FORKS = """
import importlib, json, os, sys, types
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    words, cwd, variables, out, err = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update(variables)
        for path, fd in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        sys.argv = words
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = words[0]
        if "__annotations__" in globals():  # up to Python 3.13
            main.__annotations__ = {}
        with open(words[0]) as file:
            exec(compile(file.read(), words[0], "exec"), main.__dict__)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@contextmanager
def fork_server(*modules):
    """Runs scripts, each in a process of its own; one process imports slow modules for all.

    Yields run(script, *arguments, cwd=..., **variables) -> exit code, what it
    printed, what it complained of.
    """
    command, pipe = [sys.executable, "-c", FORKS, *modules], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]

        def run(*words, cwd, **variables):
            line = json.dumps([[*map(str, words)], str(cwd), variables, *map(str, files)])
            print(line, file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            return code, *(file.read_text() for file in files)

        try:
            yield run
        finally:
            process.stdin.close()
            process.wait()


@contextmanager
def script_runner(folder, *modules):
    """Runs texts as scripts, each in a process of its own where `modules` are imported already.

    Yields run(text, *arguments, cwd=..., **variables) -> what it printed, what it complained of.
    One that fails is an error, unless `check` is False.
    """
    file = folder / "script.py"

    def run(text, *arguments, cwd=folder, check=True, **variables):
        file.write_text(text)
        code, out, err = fork(file, *arguments, cwd=cwd, **variables)
        assert code == 0 or not check, out[-1000:] + err[-3000:]
        return out, err

    with fork_server(*modules) as fork:
        yield run


def slow_after(count, cases):
    """Cases for parametrize: `.ci/run` has time for the first `count`, `nox -t release` for all."""
    cases = [*cases]
    slow = (pytest.param(case, marks=pytest.mark.slow) for case in cases[count:])
    return [*cases[:count], *slow]


def sample_if_portable(count, cases):
    """Cases for parametrize, each of several arguments. On the portable implementation many run the
    same lines of Python: there `count` of them, drawn by chance, run, and the rest are slow."""
    cases = [*cases]
    if clampgrad.implementation == "compiled":
        return cases
    chosen = {*random.Random(0).sample(range(len(cases)), count)}
    return [
        pytest.param(*case, marks=[] if i in chosen else pytest.mark.slow)
        for i, case in enumerate(cases)
    ]


def saved_and_loaded(thing, save=torch.save, load=torch.load, **keywords):
    file = io.BytesIO()
    save(thing, file)
    file.seek(0)
    return load(file, **keywords)


# ---- Two ways to differentiate: mode(f, args, g) -> one gradient per argument --------------------


def eager(f, args, g):
    args = [a.detach().clone().requires_grad_() for a in args]
    gradients = torch.autograd.grad(f(*args), args, g, allow_unused=True)
    return [torch.zeros_like(g) if v is None else v for v in gradients]


def check_rows(compiled, f, args, g):
    """The same gradients as f, of each row of the result by itself."""
    for chosen in torch.eye(len(f(*args)), dtype=torch.bool):
        gs = torch.where(chosen[:, None], g, 0)  # g for one row, 0 for the others
        for found, expected in zip(eager(compiled, args, gs), eager(f, args, gs)):
            assert_same(found, expected)


def vjp(f, args, g):
    return list(torch.func.vjp(f, *args)[1](g))


# ---- The pin that holds --------------------------------------------------------------------------


def slope(f=lambda x: torch.clamp(x, 0, 1), at=(0.0, 2.0)):
    """The slope of torch.clamp at its lower bound and beyond the upper
    one, which differ between pins."""
    x = torch.tensor(at, requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()


# Stated, not asked for: torch starts the threads of its devices at the first backward, and the
# device of the tests is not known yet where this is imported.
STOCK_SLOPES = [1, 0] if RELEASED == "inclusive" else [0, 0]
HALF_SLOPES = [0.5, 0]
STRAIGHT_THROUGH_SLOPES = [1, 1]
# By pin.
SLOPES = {None: STOCK_SLOPES, "half": HALF_SLOPES, "straight_through": STRAIGHT_THROUGH_SLOPES}

# The beginning of scripts about it.
SLOPE = """
import sys
import torch
def slope(f):
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()
def clamp(x): return torch.clamp(x, 0, 1) * 1
HALF_SLOPES, ALL = [0.5, 0.0], [1.0, 0.0]
"""


# ---- What is called ------------------------------------------------------------------------------


class Dispatched(TorchDispatchMode):
    """Calls `see` with each operator below autograd."""

    def __init__(self, see):
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.see(function)
        return function(*args, **(kwargs or {}))


# ---- Comparing -----------------------------------------------------------------------------------


def result_or_error(f, *args, **keywords):
    """What a call returns, or the type and the first line of its error.

    A backend without the operator names it. The compiled functions clamp nested Tensors by clamp,
    also in place of clamp_min.
    """
    try:
        return f(*args, **keywords)
    except Exception as error:
        text = str(error).split("\n")[0]
        if clampgrad.implementation == "compiled":
            text = re.sub(r"aten::clamp\w*", "aten::clamp", text)
        return type(error), text


def assert_same(actual, expected, message=""):
    """Equal values, NaN equal to NaN, same dtype and shape. The message is
    put into words if it fails."""
    if are_same_plain_tensors(actual, expected):
        return
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{message}\n{m}"
    )


def are_same_plain_tensors(a, b):
    """Whether two plain Tensors are the same, in a tenth of assert_close's
    time. False: ask assert_close."""
    if not (type(a) is type(b) is torch.Tensor) or a.layout != torch.strided or a.is_meta:
        return False
    if (a.dtype, a.shape, a.device, a.layout) != (b.dtype, b.shape, b.device, b.layout):
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def leaves(file):
    """Flattens a JSON file to {path: leaf}."""
    found, _ = tree_flatten_with_path(json.loads(file.read_text()))
    return {tuple(k.key if isinstance(k, MappingKey) else k.idx for k in p): v for p, v in found}


def seeded(draw, *args, seed=0, generator=None):
    """What a function of torch draws, on the device under test: the same values on every device.

    A generator belongs to one device and draws other numbers on another, so the CPU's
    draws, and the result is moved.
    """
    generator = generator or torch.Generator().manual_seed(seed)
    return draw(*args, generator=generator, device="cpu").to(torch.get_default_device())


def has_kernels():
    """Whether the device under test has kernels of ours; compositions run on any other."""
    return torch.get_default_device().type in ("cpu", "cuda")


def library():
    """The file of libclampgrad that this process has loaded, without the module of Python."""
    return Path(clampgrad.clamp.__self__.__file__).with_name(build.LIBRARY)


def random_with_ties(*shape, dtype=torch.float32, seed=0, nan=True):
    """Random values with many ties at 0 and at 1, infinities, both zeros and, if wanted, NaN."""
    values = [-torch.inf, -1, -0.0, 0.0, 0.5, 1, 1, 2, torch.inf] + [torch.nan] * nan
    index = seeded(torch.randint, len(values), shape, seed=seed)
    return torch.tensor(values, dtype=dtype)[index]
