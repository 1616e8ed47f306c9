"""The cost of clampgrad at the start of a process: `python -m benchmarks.starting`. pyperf takes each value in a new process.

`import torch`, which calls the entry point of the package, without CLAMPGRAD_GRADIENT and with it; a step of a small
network, likewise; and `import clampgrad`, which both implementations have. Seconds of CPU: the wall clock also counts
what else the machine does.
"""

import os
import statistics
import time

import pyperf

import records

PROCESSES, STEPS, ROUNDS = 9, 200, 20
PINNED = {"CLAMPGRAD_GRADIENT": "inclusive"}
ALONE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # nothing of ours at the end of `import torch`
# {what: (variables, what is imported before the clock starts, the statement that is timed)}
CASES = {
    "import torch": ({}, "", "import torch"),
    "import torch, pinned": (PINNED, "", "import torch"),
    "a step": ({}, "import torch", None),
    "a step, pinned": (PINNED, "import torch", None),
    "the entry point": (
        *(ALONE, "import torch"),
        "import _clampgrad_by_environment as ours; ours.pin()",
    ),
    "import clampgrad, compiled": (
        *({**ALONE, "CLAMPGRAD_REQUIRE_COMPILED": "1"}, "import torch"),
        "import clampgrad",
    ),
    "import clampgrad, portable": (
        *({**ALONE, "CLAMPGRAD_PORTABLE": "1"}, "import torch"),
        "import clampgrad",
    ),
}


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def step():
    """Forward, backward and update: two layers of 64 x 64 with a clamp between them, 64 samples."""
    import torch

    torch.set_num_threads(1)
    first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
    x = torch.randn(64, 64)

    def steps():
        for _ in range(STEPS):
            optimizer.zero_grad()
            second(first(x).clamp(0, 1)).square().mean().backward()
            optimizer.step()

    return min(seconds(steps) for _ in range(ROUNDS)) / STEPS


def value(loops, variables, before, statement):
    os.environ.update(variables)
    exec(before)
    return seconds(lambda: exec(statement)) if statement else step()


if __name__ == "__main__":
    program = ("-m", "benchmarks.starting")
    runner = pyperf.Runner(values=1, warmups=0, loops=1, processes=PROCESSES, program_args=program)
    rows = []
    for name, case in CASES.items():
        found = runner.bench_time_func(name, value, *case)
        if found and not runner.args.worker:
            low, median, high = statistics.quantiles(found.get_values(), n=4, method="inclusive")
            rows.append({"what": name, "low": low, "median": median, "high": high})
    if not runner.args.worker:
        records.write("starting", rows, **records.here(), processes=PROCESSES)
