"""Building a state of the tree: its flags, its progress, its libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import watched
from record import Record
from series import Refusal, Tree, files_added, named

MINIMAL = Path(__file__).with_name("minimal.cmake")
# What PyTorch takes from the environment into its configuration.
PASSED_ON = ("BUILD_", "USE_", "CMAKE_")
OTHERS = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "DEBUG", "REL_WITH_DEB_INFO"),
    *("BLAS", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "GLIBCXX_USE_CXX11_ABI"),
)
FEATURES = (
    *("CUDA", "ROCM", "XPU", "NCCL", "DISTRIBUTED", "MKLDNN", "FBGEMM", "XNNPACK", "NNPACK"),
    *("QNNPACK", "PYTORCH_QNNPACK", "KINETO", "ITT", "MIMALLOC"),
)
# What backward and forward mode are in. The others stay as they are, whatever a series changes.
LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so")
STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
MINUTE = 60.0


def environment(checkout: Path, minimal: bool) -> dict[str, str]:
    """That of the build. What is set already stays."""
    defaults = {"BUILD_TEST": "0", "MAX_JOBS": str(jobs())}
    # Parts of third_party are for CMake 3.4 and earlier, which CMake 4 refuses otherwise.
    defaults["CMAKE_POLICY_VERSION_MINIMUM"] = "3.5"
    if minimal:
        defaults |= {f"USE_{feature}": "0" for feature in FEATURES}
        defaults |= {
            "USE_PRECOMPILED_HEADERS": "1",
            "CMAKE_PROJECT_TOP_LEVEL_INCLUDES": str(MINIMAL),
        }
        if "CC" not in os.environ and "CXX" not in os.environ:
            defaults |= clang()
        defaults |= lld(os.environ.get("CXX") or defaults.get("CXX") or "c++")
    return defaults | {k: v for k, v in os.environ.items() if v or k not in defaults}


def flags(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment decides what is built."""
    chosen = (k for k in environment if k in OTHERS or k.startswith(PASSED_ON))
    return {k: environment[k].replace(str(MINIMAL), MINIMAL.name) for k in sorted(chosen)}


def jobs() -> int:
    """One for each core that has 2 GiB of memory: a file of PyTorch's may take as much."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, memory >> 31))


def clang() -> dict[str, str]:
    """The newest that is there: it takes half of GCC's time."""
    versions = [f"-{n}" for n in range(30, 13, -1)]
    for suffix in ["", *versions]:
        if shutil.which(f"clang{suffix}") and shutil.which(f"clang++{suffix}"):
            return {"CC": f"clang{suffix}", "CXX": f"clang++{suffix}"}
    return {}


def lld(compiler: str) -> dict[str, str]:
    """Where this compiler links with it."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*compiler.split(), "-fuse-ld=lld", "-x", "c++", "-", "-o", f"{scratch}/empty"]
        try:
            subprocess.run(command, input=b"int main() {}", capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return {}
    return {"LDFLAGS": "-fuse-ld=lld"}


@dataclass
class Progress:
    """Of a compiler's output one line a minute: the steps that are done, and the time that is left."""

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


def command() -> list[str]:
    """How every release that a series is for is built. Nothing is fetched: what is needed is there (ready.py)."""
    how = "-m pip install -v --no-build-isolation --no-deps --use-pep517 -e ."
    return [sys.executable, *how.split()]


@dataclass
class Place:
    """The tree in one of its states, built."""

    tree: Tree
    record: Record
    environment: dict[str, str]
    state: str
    series: str | None  # that is in the tree in this state

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        if not self.record.found(self.state, name):
            self.arrive()
        self.record.step(self.state, name, work)

    def arrive(self) -> None:
        """Makes the tree what it is in this state, and builds it, if it is not that already."""
        applied = self.tree.applied()
        if applied != self.series:
            if applied:
                self.tree.put(applied, reverse=True)
            if self.series:
                self.tree.put(self.series)
        if self.record.data["built"] != [self.series]:
            self.record.set(built=None)
            self.record.states.get(self.state, {}).pop("build", None)
            self.record.step(self.state, "build", self.build)
            self.record.set(built=[self.series], torch=self.located())
        elif (found := self.located()) != self.record.data["torch"]:
            raise Refusal(f"{found} is imported, and {self.record.data['torch']} was built")

    def located(self) -> str:
        """Where the torch is that Python imports."""
        ask = [sys.executable, "-c", "import torch; print(torch.__file__)"]
        done = subprocess.run(ask, cwd=self.record.folder, capture_output=True, text=True)
        if done.returncode:
            raise Refusal(f"the torch that was built is not imported:\n{done.stderr.strip()}")
        return done.stdout.strip()

    def build(self) -> dict[str, Any]:
        log = self.record.log(self.state, "build")
        # A version of its own, so that nobody takes the build for another.
        version = (self.tree.path / "version.txt").read_text().strip().replace("a0", "")
        local = f"{version}+{(self.series or 'stock').rpartition('/')[2]}"
        versions = {"PYTORCH_BUILD_VERSION": local, "PYTORCH_BUILD_NUMBER": "1"}
        self.configure_anew_if_needed()
        environment = self.environment | versions
        code = watched(command(), log, Progress().see, cwd=self.tree.path, env=environment)
        lines = log.read_text(errors="replace").splitlines()
        if code:
            errors = [line for line in lines if "error:" in line.lower()] or lines[-20:]
            left = f" {self.series} is in the tree." if self.series else ""
            raise Refusal(
                "\n".join(["the build failed:", *errors[:20], f"The log is {log}.{left}"])
            )
        done = [found[3] for found in map(STEP.match, lines) if found]
        compiled = [line.split("/")[-1] for line in done if line.startswith("Building CXX")]
        return {"steps": len(done), "files": len(compiled)} | (
            {"compiled": sorted(compiled)} if len(compiled) < 50 else {}
        )

    def configure_anew_if_needed(self) -> None:
        """PyTorch's build keeps the flags that it was configured with, and the list of files."""
        wanted = flags(self.environment)
        before, now = self.record.data.get("configured"), [wanted, self.added_files()]
        if before != now:
            for name in ("CMakeCache.txt", "build.ninja"):
                (self.tree.path / "build" / name).unlink(missing_ok=True)
            self.record.set(configured=now)

    def added_files(self) -> list[str]:
        patches = named(self.series).patches if self.series else []
        return sorted({name for patch in patches for name in files_added(patch)})

    # ---- What is asked of it -------------------------------------------------------------------------

    @property
    def libraries(self) -> Path:
        return self.record.folder / "libraries" / self.state

    def keep_libraries(self) -> None:
        """Copies of those that a series changes, so that states can be timed in turn."""

        def copy() -> dict[str, Any]:
            self.libraries.mkdir(parents=True, exist_ok=True)
            for name in LIBRARIES:
                shutil.copyfile(self.tree.path / "torch" / "lib" / name, self.libraries / name)
            return {}

        self.step("libraries", copy)
