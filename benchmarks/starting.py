"""What a process pays for clampgrad: `python -m benchmarks.starting`. By pyperf: every value is of a process of its own.

`import torch`, which calls the entry point of the package, without CLAMPGRAD_GRADIENT and with it; a step of a small
network, likewise; and `import clampgrad`, which both implementations have. Seconds of CPU: the wall clock also counts
what else the machine does.
"""

import os
import statistics
import sys
import time

import pyperf

import records

PROCESSES, STEPS, ROUNDS = 9, 200, 20
PINNED = {"CLAMPGRAD_GRADIENT": "inclusive"}
ALONE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # nothing of ours at the end of `import torch`


def seconds(statement, names=None):
    start = time.process_time()
    exec(statement, names or {})
    return time.process_time() - start


def importing():
    return seconds("import torch")


def ours(statement):
    import torch  # noqa: F401

    return seconds(statement)


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

    return min(seconds("steps()", {"steps": steps}) for _ in range(ROUNDS)) / STEPS


CASES = {
    "import torch": ({}, importing),
    "import torch, pinned": (PINNED, importing),
    "a step": ({}, step),
    "a step, pinned": (PINNED, step),
    "the entry point": (
        ALONE,
        lambda: ours("import _clampgrad_by_environment as ours; ours.pin()"),
    ),
    "import clampgrad, compiled": (
        {**ALONE, "CLAMPGRAD_REQUIRE_COMPILED": "1"},
        lambda: ours("import clampgrad"),
    ),
    "import clampgrad, portable": (
        {**ALONE, "CLAMPGRAD_PORTABLE": "1"},
        lambda: ours("import clampgrad"),
    ),
}


def main():
    program = ("-m", "benchmarks.starting")
    runner = pyperf.Runner(values=1, warmups=0, loops=1, processes=PROCESSES, program_args=program)
    rows = []
    for name, (variables, measure) in CASES.items():

        def value(loops, variables=variables, measure=measure):
            os.environ.update(variables)
            return measure()

        found = runner.bench_time_func(name, value)
        if found and not runner.args.worker:
            low, median, high = statistics.quantiles(found.get_values(), n=4, method="inclusive")
            rows.append({"what": name, "low": low, "median": median, "high": high})
    if not runner.args.worker:
        records.write("starting", rows, **records.here(), processes=PROCESSES)


if __name__ == "__main__":
    sys.exit(main())
