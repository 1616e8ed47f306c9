"""Sums up a compiler's output, one line a minute: the steps that are done, and the time that is left."""

import re
import time
from dataclasses import dataclass

STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
# What ninja calls a step, or with VERBOSE=1 its command.
COMPILES = re.compile(
    r"Building (?:CXX|CUDA) object (\S+)|(?=.* -c ).* -o (\S+\.(?:cpp|cc|cu)\.o)\b"
)
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
    objects = [found[1] or found[2] for found in map(COMPILES.match, done) if found]
    return len(done), sorted(name.split("/")[-1] for name in objects)
