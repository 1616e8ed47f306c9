"""What the machine is, and what this process may use of it: all, or what its CPUs and control groups leave."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def limits(controller: str, name: str) -> Iterator[list[str]]:
    """The words of this file in every group around the process: the second version has one tree for all
    controllers, the first a tree for each."""
    for line in OWN.read_text().splitlines() if OWN.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        folder = GROUPS / controllers / path.strip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(GROUPS / controllers) and (group / name).is_file():
                yield (group / name).read_text().split()


def cores() -> int:
    quotas = [*limits("cpu", "cpu.max")]
    first = zip(limits("cpu", "cpu.cfs_quota_us"), limits("cpu", "cpu.cfs_period_us"))
    quotas += [[*quota, *period] for quota, period in first]
    shares = [math.ceil(int(q) / int(period)) for q, period in quotas if q not in ("max", "-1")]
    return max(1, min([len(os.sched_getaffinity(0)), *shares]))


def memory() -> int:
    """In bytes."""
    files = [*limits("memory", "memory.max"), *limits("memory", "memory.limit_in_bytes")]
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(int(limit) for (limit,) in files if limit != "max")])
