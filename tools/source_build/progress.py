"""Sums up a compiler's output, one line a minute: the steps that are done, and the time that is left."""

import re
import time
from dataclasses import dataclass

STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
MINUTE = 60.0


@dataclass
class Progress:
    done: int = 0
    total: int = 0
    start: float = 0.0
    shown: float = 0.0

    def see(self, line: str) -> None:
        found = STEP.match(line)
        if not found:
            return
        now = time.monotonic()
        if int(found[2]) != self.total:  # ninja begins, or begins again after it ran CMake
            self.total, self.start, self.shown = int(found[2]), now, now
        self.done = int(found[1])
        if self.done and now - self.shown >= MINUTE:
            self.shown = now
            left = (now - self.start) / self.done * (self.total - self.done) / 60
            print(f"    {self.done} of {self.total} steps, {left:.0f} min left", flush=True)


def steps(lines: list[str]) -> tuple[int, list[str]]:
    """How many steps a build has done, and the files that it compiled."""
    done = [found[3] for found in map(STEP.match, lines) if found]
    compiled = [s.split("/")[-1] for s in done if re.match(r"Building (CXX|CUDA) object", s)]
    return len(done), sorted(compiled)
