"""The first pin of a process changes torch once, as a whole or not at
all, whatever other threads do."""

import pytest

from testing.cases import slow_after
from testing.processes import script_runner
from testing.slopes import SLOPE_SCRIPT

START = f"""{SLOPE_SCRIPT}
import threading
own = slope(clamp)
import clampgrad
"""

# Provokes a failure at every line of ours that calls something, one line per attempt.
FAILURES = """
import torch._dynamo.guards, torch._dynamo.aot_compile, torch._inductor.codecache
import torch.utils.checkpoint as segments
from clampgrad._pin import backward, compiled_code, first_pin
from clampgrad._torch import after_import, compiler, replacements
ours = {backward, compiled_code, first_pin}
ours = {m.__file__ for m in ours | {after_import, compiler, replacements}}
owners = [
    torch._dynamo.guards.GuardBuilder,
    torch._dynamo.aot_compile.AOTCompiledFunction,
    torch._inductor.codecache.FxGraphHashDetails,
    segments._CheckpointFrame,
    segments.CheckpointFunction,
    sys.modules["torch._higher_order_ops.cond"].CondAutogradOp,
]
def state():
    actions = {name: [*known] for name, known in after_import._finder.actions.items() if known}
    return [dict(vars(owner)) for owner in owners], actions
class Injected(Exception):
    pass
failed_at = set()
def fail(frame, event, argument):
    caller = frame.f_back if event == "call" else frame
    if event not in ("call", "c_call") or caller.f_code.co_filename not in ours:
        return
    if {"__exit__", "release"} & {frame.f_code.co_name, getattr(argument, "__name__", None)}:
        return  # nothing is given back where giving it back fails
    place = caller.f_code.co_filename, caller.f_lineno
    if place not in failed_at:
        failed_at.add(place)
        sys.setprofile(None)
        raise Injected(place)
before, attempts = state(), 0
while True:
    try:
        sys.setprofile(fail)
        clampgrad.pin("half").__enter__()
        break
    except Injected as error:
        assert state() == before, error
    finally:
        sys.setprofile(None)
    attempts += 1
    assert clampgrad.pin.current() is None
    assert slope(clamp) == slope(torch.compile(clamp, backend="eager")) == own
assert state() != before
assert slope(clamp) == slope(torch.compile(clamp, backend="eager")) == HALF_SLOPES
assert slope(lambda x: segments.checkpoint(clamp, x, use_reentrant=False)) == HALF_SLOPES
print(attempts)
"""


@pytest.mark.slow
def test_a_first_pin_that_fails_anywhere_changes_nothing_and_can_be_tried_again(script):
    assert int(script(START + FAILURES)[0]) > 40


LOCKED = """
import os, signal, time
from clampgrad._pin import first_pin
lock = {
    "first": first_pin._install_lock,
    "changing": first_pin._replacement_lock,
    "compiler": torch._dynamo.convert_frame.compile_lock,
}[sys.argv[1]]
begun = threading.Event()
def hold():
    with lock:
        begun.set()
        time.sleep(0.5)
thread = threading.Thread(target=hold)
thread.start()
begun.wait()
if (child := os.fork()) == 0:
    signal.alarm(20)
    if sys.argv[1] == "compiler":
        os._exit(0)
    clampgrad.set_pin("inclusive")
    os._exit(slope(clamp) != ALL)
if sys.argv[1] == "compiler":
    assert thread.is_alive()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.thorough
@pytest.mark.parametrize("lock", slow_after(1, ["changing", "first", "compiler"]))
def test_a_fork_while_another_thread_has_a_lock(script, lock):
    """It waits for ours, and not for a compilation."""
    script(START + LOCKED, lock)


WAITING = """
import time
from torch._dynamo.convert_frame import compile_lock
from clampgrad._pin import first_pin
begun, compiled = threading.Event(), threading.Event()
def compiles():
    with compile_lock:
        begun.set()
        time.sleep(0.5)
        if sys.argv[1] == "pins":
            with clampgrad.pin("half"):
                assert slope(clamp) == HALF_SLOPES
    compiled.set()
def pins():
    with clampgrad.pin("inclusive"):
        assert slope(clamp) == ALL and compiled.is_set()
threads = [threading.Thread(target=compiles), threading.Thread(target=pins)]
threads[0].start()
begun.wait()
threads[1].start()
time.sleep(0.1)
assert first_pin._install_lock.acquire(timeout=0.2), "it waits for the compiler, and no fork can begin"
first_pin._install_lock.release()
for thread in threads: thread.join(20)
assert not any(thread.is_alive() for thread in threads)
"""


@pytest.mark.parametrize("what", ["pins", "goes on"])
def test_a_first_pin_while_another_thread_compiles(script, what):
    script(START + WAITING, what)


INSIDE = """
import gc
kind, backend = sys.argv[1:]
def in_a_block(x, name="half"):
    with clampgrad.pin(name):
        return clamp(x)
def set_and_ended(x):
    clampgrad.set_pin("half")
    y = clamp(x)
    clampgrad.set_pin(None)
    return y
inside = {
    "block": in_a_block,
    "one graph": in_a_block,
    "decorated": clampgrad.pin("half")(clamp),
    "installed": lambda x: in_a_block(x, "installed"),
    "set_pin": set_and_ended,
}[kind]
def f(x): return inside(x * 1) * 1
expected = own if kind == "installed" else HALF_SLOPES
if kind == "one graph":
    try:
        slope(torch.compile(f, backend=backend, fullgraph=True))
        raise SystemExit("no error")
    except torch._dynamo.exc.Unsupported:
        assert clampgrad.pin.current() is None
compiled = torch.compile(f, backend=backend)
for _ in range(3):
    assert slope(compiled) == expected, slope(compiled)
    gc.collect()
assert clampgrad.pin.current() is None
assert slope(torch.compile(clamp, backend=backend)) == own
with clampgrad.pin("inclusive"):
    assert slope(torch.compile(clamp, backend=backend)) == ALL
    assert slope(compiled) == (ALL if kind == "set_pin" else expected)  # a block takes precedence
"""


@pytest.mark.parametrize(
    "backend",
    ["aot_eager", *(pytest.param(b, marks=pytest.mark.slow) for b in ("eager", "inductor"))],
)
@pytest.mark.parametrize(
    "kind", slow_after(1, ["block", "installed", "one graph", "decorated", "set_pin"])
)
def test_a_first_pin_inside_a_compiled_function(script, kind, backend):
    script(START + INSIDE, kind, backend)


UNKNOWN = """
import torch._higher_order_ops
class Double(torch.autograd.Function):
    @staticmethod
    def forward(x): return 2 * x
    @staticmethod
    def setup_context(ctx, inputs, output): pass
    @staticmethod
    def backward(ctx, g): return 2 * g
module = sys.modules["torch._higher_order_ops.cond"]
module.Double, Double.__module__ = Double, module.__name__
def cond(x): return torch.cond(x.sum() > -1, clamp, clamp, (x,))
def refused(function, *args):
    try:
        function(*args)
    except RuntimeError as error:
        return "does not take 'ctx' first; the pin 'half' cannot hold in it" in str(error)
before = slope(Double.apply), Double.apply(torch.ones(1, requires_grad=True))
with clampgrad.pin("half"):
    assert slope(clamp) == slope(cond) == HALF_SLOPES
    assert refused(slope, Double.apply) and refused(before[1].backward)
assert slope(Double.apply) == before[0] and not refused(Double.apply(before[1]).backward)
"""


@pytest.mark.slow
def test_an_operator_of_a_kind_that_is_not_known_is_refused_alone(script):
    """In the forward, and where it is backward alone that runs under a pin."""
    script(START + UNKNOWN)


RACING = """
sys.setswitchinterval(1e-6)
threads, found = 8, []
start = threading.Barrier(threads)
def work():
    start.wait()
    with clampgrad.pin("half"):
        found.append(slope(clamp))
of_all = [threading.Thread(target=work) for _ in range(threads)]
for thread in of_all: thread.start()
for thread in of_all: thread.join()
assert found == [HALF_SLOPES] * threads, found
assert slope(clamp) == own
"""


@pytest.mark.thorough
def test_threads_whose_first_act_is_a_pin(script):
    for _ in range(5):
        script(START + RACING)


IMPORTING = """
import threading
import clampgrad
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=lambda: __import__("torch._dynamo"))
thread.start()
while "torch._dynamo.guards" not in sys.modules:
    pass
with clampgrad.pin("half"):
    thread.join()
    assert slope(torch.compile(clamp, backend="eager")) == HALF_SLOPES
builder = torch._dynamo.guards.GuardBuilder
wrapped = getattr(builder, "GLOBAL_STATE", None) or builder.GRAD_MODE  # the latter before torch 2.10
assert hasattr(wrapped, "__wrapped__")
"""


@pytest.mark.thorough
def test_a_first_pin_while_another_thread_imports_the_compiler(tmp_path):
    with script_runner(tmp_path, "torch") as run:
        run(SLOPE_SCRIPT + IMPORTING)
