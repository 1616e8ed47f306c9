"""What a PyTorch source tree is: its release, its convention, what was done to it."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .series import Refusal

YAML = "tools/autograd/derivatives.yaml"
FUNCTIONS = "torch/csrc/autograd/FunctionsManual.cpp"
NATIVE = "aten/src/ATen/native/native_functions.yaml"
SCRIPT = "torch/csrc/jit/runtime/symbolic_script.cpp"


@dataclass
class Status:
    release: str
    commit: str | None
    dirty: bool
    convention: str
    series: dict[str, str]  # series: applied, in part, not applied

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def run_git(source: Path, *arguments: str, **how: Any) -> subprocess.CompletedProcess[Any]:
    """Runs git on the repository of a folder, also where a hook or `git rebase --exec` names another."""
    theirs = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    environment = {key: value for key, value in os.environ.items() if key not in theirs}
    command = ["git", *arguments]
    try:
        return subprocess.run(command, cwd=source, env=environment, capture_output=True, **how)
    except FileNotFoundError:
        raise Refusal("There is no git on PATH, which applies the patches: install it.") from None


def git(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_git(source, *arguments, text=True)


def output_of(command: Sequence[object], refusal: str, **keywords: Any) -> str:
    """What a command writes; if it fails, a refusal with the last lines of its errors."""
    words = list(map(str, command))
    result = subprocess.run(words, capture_output=True, text=True, **keywords)
    if result.returncode:
        last = result.stderr.strip().splitlines()[-6:]
        raise Refusal(f"{refusal}:\n" + "\n".join(last))
    return result.stdout


def is_repository(source: Path) -> bool:
    """Whether the tree itself is under git; a folder inside somebody else's repository is not."""
    top = git(source, "rev-parse", "--show-toplevel")
    if top.returncode and (source / ".git").exists():
        raise Refusal(f"git does not read {source}: {top.stderr.strip()}")
    return top.returncode == 0 and Path(top.stdout.strip()).resolve() == source.resolve()


def release_of(source: Path) -> str:
    """The release a tree says it is, as 2.13.0; refuses what is no PyTorch tree."""
    if not (source / YAML).is_file() or not (source / "version.txt").is_file():
        raise Refusal(f"{source} is no PyTorch source tree: it has no {YAML} or no version.txt.")
    found = re.match(r"\d+\.\d+\.\d+", (source / "version.txt").read_text())
    if not found:
        raise Refusal(f"{source}/version.txt does not begin with a release.")
    return found.group()


def changed_files(source: Path) -> list[str]:
    """The tracked files that differ from the commit; a tree without git has nothing to compare."""
    if not is_repository(source):
        return []
    return git(source, "diff", "HEAD", "--name-only").stdout.splitlines()


def formulas(text: str, name: str) -> dict[str, str]:
    """One entry of derivatives.yaml as it is written, by argument."""
    found = re.search(r"^- name: " + re.escape(name) + r"\(.*\n((?:  .*\n)+)", text, re.MULTILINE)
    lines = found.group(1).splitlines() if found else []
    pairs = (line.strip().split(": ", 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def convention_of(text: str) -> str:
    """inclusive, strict scalar (Scalar bounds alone), shared ties, or fixed fmax (shared there too).

    Read off derivatives.yaml: the strictness of clamp_min, the ties of clamp_min.Tensor, and what
    fmax gives `other`, strictly compared, at a NaN.
    """
    scalar = formulas(text, "clamp_min").get("self", "")
    if not scalar:
        return "unknown"
    if ">=" in scalar:
        return "inclusive"
    if "== min" not in formulas(text, "clamp_min.Tensor").get("self", ""):
        return "strict scalar"
    other = formulas(text, "fmax").get("other", "")
    return "fixed fmax" if "== other" in other and "isnan" in other else "shared ties"
