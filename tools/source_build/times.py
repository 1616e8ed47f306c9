"""The time of backward and of forward mode on the torch in a folder: python -S times.py OUT FOLDER."""

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import torch  # noqa: E402
from backward_cases import DTYPES, cases  # noqa: E402

import answering  # noqa: E402

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


def is_of(folder: str) -> None:
    """Checks that this is the torch of the folder, whose times are wanted."""
    mapped = {word for word in Path("/proc/self/maps").read_text().split() if "/libtorch" in word}
    others = [path for path in {*mapped, torch.__file__} if not path.startswith(folder)]
    assert mapped and not others, f"not of {folder}: {others}"


def main() -> None:
    out, folder = sys.argv[1:]
    answering.check()
    is_of(folder)
    torch.set_num_threads(1)
    found = {}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            found |= {f"{c}; {name}, {n}": fastest(f) for c, f in cases(x).items()}
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
