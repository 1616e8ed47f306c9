"""How often the first pin of a process fails that threads race for: benchmarks/results/first-pins.json.

    python benchmarks/first_pins.py            about 20 minutes

A process has one first pin. So one process imports torch, its compiler and clampgrad, and pins nothing;
each trial is a fork of it, whose threads pin at a switch interval of 1e-7, half of them "half", half of
them "inclusive", and then compile torch.clamp. A trial holds if every thread has the gradients of its pin,
eager and compiled, if torch was told once, and if torch's own is what is compiled afterwards.
A trial that takes more than two minutes has failed. As a control, trials run without the lock.
"""

import argparse
import gc
import json
import os
import platform
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import torch
import torch._dynamo
import torch._functorch.aot_autograd

import clampgrad
from clampgrad import _implementation
from clampgrad._pin import first_pin
from hardware import machine

RECORD = Path(__file__).parent / "results" / "first-pins.json"
BACKENDS = "eager", "aot_eager"
LONGEST = 120
HALF, ALL = [0.5, 0.0], [1.0, 0.0]


def clamp(x):
    return torch.clamp(x, 0, 1) * 1


def slope(function):
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    return torch.autograd.grad(function(x).sum(), x)[0].tolist()


def compiled(backend):
    return slope(torch.compile(clamp, backend=backend))


def trial(threads, backend):
    """Raises where something is not as it should be."""
    # Builds for CUDA change a table of devices when they first compile where there is no GPU: release 2.11
    # then crashes if other threads run, without a pin too.
    torch._C._ensureCUDADeviceGuardSet()
    own = slope(clamp)
    register, told, wrong = _implementation.pin_register, [], []

    def counted():
        told.append(True)
        return register()

    _implementation.pin_register = counted
    start, pinned = threading.Barrier(threads), threading.Barrier(threads)

    def work(pin, expected):
        try:
            torch._dynamo.config.recompile_limit = 1000  # of this thread
            start.wait()
            with clampgrad.pin(pin):
                pinned.wait()
                sys.setswitchinterval(0.005)  # compiling at the other takes minutes
                found = slope(clamp), compiled(backend)
            if found != (expected, expected):
                wrong.append(f"{pin}: {found}")
        except BaseException as error:
            pinned.abort()
            wrong.append(f"{type(error).__name__}: {error}")

    pins = [("half", HALF), ("inclusive", ALL)]
    workers = [threading.Thread(target=work, args=pins[i % 2]) for i in range(threads)]
    sys.setswitchinterval(1e-7)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[0]
    assert told == [True], f"torch was told {len(told)} times"
    assert compiled(backend) == own, "a pin is in what is compiled afterwards"


def forked(*given):
    """What went wrong in a trial, or nothing."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(LONGEST)
        gc.disable()  # it would copy all that a fork shares
        # torch makes its thread pool anew in the first call after a fork, and two threads that do so at
        # once fail: "Invalid thread pool".
        torch.set_num_threads(1)
        try:
            trial(*given)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}"[:300].encode())
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as said:
        text = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text or (f"ended by signal {-status}" if status else "")


def measure(trials, threads):
    errors, begun = Counter(), time.monotonic()
    for i in range(trials):
        if wrong := forked(threads, BACKENDS[i % 2]):
            errors[wrong.partition("\n")[0]] += 1
    return {
        "threads": threads,
        "trials": trials,
        "failed": errors.total(),
        "errors": dict(errors),
        "seconds": round(time.monotonic() - begun),
    }


def without_the_lock():
    first_pin.tell_in_turn = first_pin.tell_once


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--two", type=int, default=1000, help="trials with two threads")
    parser.add_argument("--many", type=int, default=20, help="trials with 64 threads")
    parser.add_argument("--control", type=int, default=50, help="trials without the lock")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for backend in BACKENDS:
        # Imports what compiling needs. It has no backward, which a build for CUDA has in threads that no fork
        # survives.
        torch.compile(clamp, backend=backend)(torch.zeros(2))
    torch._dynamo.reset()
    assert not first_pin._done, "something was pinned"
    record = {
        "torch": torch.__version__,
        "implementation": clampgrad.implementation,
        "machine": machine(),
        "python": platform.python_version(),
        "rows": [],
    }

    def write():  # as it goes, for a run may take hours on a machine with other load
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    for trials, threads in (given.two, 2), (given.many, 64):
        record["rows"].append(measure(trials, threads))
        write()
    without_the_lock()
    record["without the lock"] = measure(given.control, 2)
    write()
    print(given.out.read_text())


if __name__ == "__main__":
    main()
