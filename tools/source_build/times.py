"""The time of backward and of forward mode on the torch that was built: python times.py OUT."""

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import torch  # noqa: E402

from patched_backward import DTYPES, cases  # noqa: E402

SIZES = (2**16, 2**20)
CALLS = 20


def fastest(run) -> float:
    """Microseconds of one call."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - start))
    return round(min(times), 1)


def main() -> None:
    torch.set_num_threads(1)
    x = torch.zeros(1, requires_grad=True)
    found = {"gradient at a bound": torch.autograd.grad(x.clamp(0, 1), x)[0].item()}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            found |= {f"{c}; {name}, {n}": fastest(f) for c, f in cases(x).items()}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
