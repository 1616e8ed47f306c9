"""How a program of lab/programs/ runs under a setting, as a process of its own, and what it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "lab" / "programs"
LIMIT = 1200  # seconds of a program

PORTABLE = {"CLAMPGRAD_PORTABLE": "1"}
COMPILED = {"PROGRAM_COMPILED": "1"}


@dataclass(frozen=True)
class Setting:
    """One way to run a program, and the run that it is compared with."""

    release: int  # which of those given
    name: str
    pin: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    like: str | None = None  # the setting that it equals, unless programs.yaml says otherwise
    changes: str | None = None  # the setting that it differs from, where programs.yaml says


SETTINGS = [
    Setting(0, "stock"),
    Setting(0, "inclusive", "inclusive", like="stock"),
    Setting(0, "joint", "joint", changes="stock"),
    Setting(0, "portable inclusive", "inclusive", PORTABLE, like="stock"),
    Setting(0, "portable joint", "joint", PORTABLE, like="joint"),
    Setting(0, "compiled", None, COMPILED),
    Setting(0, "compiled inclusive", "inclusive", COMPILED, like="compiled"),
    Setting(0, "compiled joint", "joint", COMPILED, changes="compiled"),
    Setting(1, "later stock", like="joint"),
    Setting(1, "later inclusive", "inclusive", like="stock"),
    Setting(1, "later joint", "joint", like="later stock"),
]


@dataclass
class Run:
    program: str  # a hash of its text
    lines: dict[str, list[str]]  # label: hash and number
    stderr: str
    code: int
    seconds: float

    @property
    def reached(self) -> dict[str, int]:
        """How many calls of each operator the pin reached."""
        found: dict[str, int] = {}
        for calls in re.findall(r"clampgrad: .* the pin reached [\d,]+ calls?: (.*)", self.stderr):
            for name, n in re.findall(r"(\w+) (\d+)", calls):
                found[name] = found.get(name, 0) + int(n)
        return found

    @property
    def error(self) -> str:
        """The last line on stderr, where Python names an exception."""
        lines = [s for s in self.stderr.splitlines() if s and not s.startswith("clampgrad: ")]
        return lines[-1] if lines else f"exit code {self.code}"


# What many libraries import, and what changes nothing in torch.
SHARED = ["torch._dynamo", "torch._inductor.compile_fx", "scipy.stats", "sklearn.metrics", "pandas"]

# One process imports torch, under the variable that pins it, and the shared libraries. The programs are forks of
# it, which saves their imports.
FORKS = """
import contextlib, importlib, json, os, runpy, signal, sys
import torch
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
for line in sys.stdin:
    script, out, err, limit = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for path, fd in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        signal.alarm(limit)
        sys.argv = [script]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def digest(name: str) -> str:
    """A hash of all the text of a program."""
    texts = [(PROGRAMS / f"{file}.py").read_bytes() for file in (name, "digests")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def runs(
    setting: Setting, python: str, names: list[str], folder: Path
) -> Iterator[tuple[str, Run]]:
    """Runs programs under a setting; what they leave goes into the folder."""
    if not names:
        return
    ours = ("CLAMPGRAD_", "PROGRAM_")
    rest = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    fixed = {
        "CLAMPGRAD_VERBOSE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        # One cache for all runs: its keys must tell pins apart.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    pin = {"CLAMPGRAD_GRADIENT": setting.pin} if setting.pin else {}
    out, err, at_import = (folder / name for name in ("out", "err", "import"))
    with at_import.open("w") as file:
        process = subprocess.Popen(
            [python, "-c", FORKS, *SHARED],
            env={**rest, **fixed, **pin, **setting.variables},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    with process:
        assert process.stdin and process.stdout
        for name in names:
            start, text = time.monotonic(), digest(name)
            script = str(PROGRAMS / f"{name}.py")
            process.stdin.write(json.dumps([script, str(out), str(err), LIMIT]) + "\n")
            process.stdin.flush()
            code = process.stdout.readline()
            if not code:
                raise RuntimeError(
                    f"{setting.name}: torch is not imported: {at_import.read_text()}"
                )
            found = re.findall(r"^(.+) \| (\w+) \| (\S+)$", out.read_text(), re.MULTILINE)
            lines = {label: [digest, number] for label, digest, number in found}
            told, ended = at_import.read_text() + err.read_text()[-10_000:], int(code)
            if len(lines) < len(found):
                told, ended = f"{told}\nit prints a label twice", ended or 1
            yield name, Run(text, lines, told, ended, round(time.monotonic() - start, 1))
