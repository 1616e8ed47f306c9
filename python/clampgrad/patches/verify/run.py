"""`verify`: a patch proved against the installed torch, the whole way from derivatives.yaml to gradients."""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

from ..series import Refusal, default, named
from . import torchscript
from .compile import compiled
from .generate import FAMILY, Code, differences, generated
from .text import Text, patched

Say = Callable[[str], None]
# Keys of the result that say what a patch changed.
CODE = "code that changed"
GRADIENTS = "gradients that changed"


def ask(task: str, library: Path | None = None) -> dict:
    """One run of checks.py, in a process of its own."""
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("checks.py")), task],
        input=json.dumps({"library": str(library) if library else None}),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        last = result.stderr.strip().splitlines()[-4:]
        raise Refusal(f"the checks ({task}) broke off:\n" + "\n".join(last))
    return json.loads(result.stdout)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def table() -> ModuleType:
    """The table of conventions with its reader, which checks.py puts on the path."""
    return import_module("oracle")


def expected(convention: str, key: str, row: list[float], count: int) -> list[float]:
    """The gradients that the table asks for at one point."""
    oracle = table()
    operator, kind, _ = key.split(", ")
    args = [torch.tensor(v, dtype=torch.float64) for v in row[:count]]
    g = torch.tensor(row[count], dtype=torch.float64)
    return [oracle.scaled(g, f).item() for f in oracle.factors(operator, kind, convention, args)]


def against_table(found: dict, convention: str, changed: set[str]) -> list[str]:
    """Where the gradients are not those of a convention, one example for each operator and mode.

    Forward mode is held to the table where the patch changed it: elsewhere it is stock's own, which
    is no transpose at NaN.
    """
    failures = []
    for key, rows in found.items():
        operator, kind, mode = key.split(", ")
        if mode in ("forward", "jvp") and f"{operator}, {kind}" not in changed:
            continue
        count = 3 if operator == "clamp" else 2
        for row in rows:
            got, wanted = row[count + 1 :], expected(convention, key, row, count)
            if not all(same(a, b) for a, b in zip(got, wanted)):
                lost = not any(got) and any(wanted) and len(got) > 1
                word = ": no subgradient, the gradient is lost" if lost else ""
                failures.append(
                    f"{key}: at {row[:count]} with gradient {row[count]} got {got},"
                    f" {convention} has {wanted}{word}"
                )
                break
    return failures


def changes(a: dict, b: dict) -> list[str]:
    """Which operators, kinds and modes have other gradients, with how many points."""
    lines = []
    for key in a:
        n = sum(not all(map(same, x, y)) for x, y in zip(a[key], b[key]))
        if n:
            lines.append(f"{key}: {n} of {len(a[key])}")
    return lines


def held(found: dict, convention: str | None, changed: set[str]) -> list[str]:
    """Where the gradients are not those of a convention; of any one, for each operator, if none is named."""
    if convention:
        return against_table(found, convention, changed)
    failures: list[str] = []
    for operator in sorted({key.rpartition(", ")[0] for key in found}):
        some = {key: rows for key, rows in found.items() if key.startswith(operator + ", ")}
        tries = [against_table(some, name, changed) for name in table().EXACT]
        nearest: list[str] = min(tries, key=len)
        failures += nearest
    return failures


def in_torchscript(texts: list[Text], convention: str | None) -> dict:
    """The functions of symbolic_script.cpp: stock's own gradients before, those of a convention after."""
    before, after = (torchscript.gradients(text.script) for text in texts)
    found = {"failures": [], GRADIENTS: changes(before, after)}
    if differing := changes(torchscript.executed(), before):
        found["failures"].append("TorchScript's gradients are not stock's: " + "; ".join(differing))
    if texts[0].script != texts[1].script:
        found["failures"] += held(after, convention, set())
    return found


def in_torch(
    codes: list[Code],
    folders: list[Path],
    convention: str | None,
    touched: set[str],
    quick: bool,
    say: Say,
) -> dict:
    """Everything else: compiled twice, and run in processes of their own."""
    with ThreadPoolExecutor(2) as both:
        say("4/6 compiling it twice, without the patch and with it")
        libraries = list(both.map(compiled, codes, folders))
        say("5/6 gradients: stock, the control, the patch")
        plain, control, patched = both.map(ask, ["gradients"] * 3, [None, *libraries])
    failures = []
    if differing := changes(plain["gradients"], control["gradients"]):
        failures.append("the control without the patch is not stock: " + "; ".join(differing))
    for operator, name in patched["nodes"].items():
        if not name.startswith("Proved"):
            failures.append(f"{operator} did not run the patched node but {name}")
    failures += held(patched["gradients"], convention, touched)
    say("6/6 OpInfo" + ": left out" * quick)
    checks = {} if quick else ask("opinfo", libraries[1])
    return {
        "failures": failures + checks.get("failures", []),
        GRADIENTS: changes(plain["gradients"], patched["gradients"]),
        "opinfo samples": checks.get("checked", 0),
    }


def verify(
    patches: list[Path] | None,
    series: str | None,
    source: Path | None,
    convention: str | None,
    quick: bool,
    say: Say,
) -> dict:
    """Proves patches, or a series, in the installed torch. `failures` is empty if all of it holds.

    Nothing is generated or compiled where a patch changes no C++, nothing compiled where it changes
    more than the family. Refuses what does not apply, is not taken by torchgen or does not compile.
    """
    if missing := [name for name in ("expecttest", "numpy", "yaml") if not find_spec(name)]:
        raise Refusal(f"verify needs {', '.join(missing)}: pip install 'clampgrad[patches]'.")
    release = torch.__version__.split("+")[0]
    if not patches:
        chosen = named(series) if series else default(release)
        patches, convention = chosen.patches, convention or chosen.convention
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as both:
        folders = [Path(scratch, "stock"), Path(scratch, "new")]
        say(f"1/6 applying to the text of torch {release}")
        texts = [patched(folder, p, release, source) for folder, p in zip(folders, ([], patches))]
        say("2/6 the functions of TorchScript")
        found = [in_torchscript(texts, convention)]
        functions = {n for n, _ in set(texts[0].manual) ^ set(texts[1].manual)}
        changed: set[str] = set()
        if functions or texts[0].yaml != texts[1].yaml:
            say("3/6 generating code with the installed torchgen")
            codes = list(both.map(generated, folders, texts))
            changed = differences(*codes)
            strangers = [f"{n} changed, outside of the family" for n in outside(changed, codes[1])]
            found.append({"failures": strangers, GRADIENTS: []})
        if changed | functions and not found[-1]["failures"]:
            touched = operators(changed)
            if functions:
                touched |= {"clamp, numbers", "clamp, tensors"}
            found.append(in_torch(codes, folders, convention, touched, quick, say))
    scripted = {f"{n} of TorchScript" for n, _ in set(texts[0].script) ^ set(texts[1].script)}
    return {
        "torch": torch.__version__,
        "convention": convention,
        "patches": [patch.name for patch in patches],
        CODE: sorted(changed | functions | scripted),
        GRADIENTS: sum((f[GRADIENTS] for f in found), []),
        "opinfo samples": found[-1].get("opinfo samples", 0),
        "failures": sum((f["failures"] for f in found), []),
    }


def outside(changed: set[str], code: Code) -> list[str]:
    """What changed beside the kernels and nodes of the family."""
    kernels = {n for n in code.kernels if FAMILY.match(n)}
    nodes = {n for n in code.nodes if "Clamp" in n or "imum" in n or n[:4] in ("Fmax", "Fmin")}
    return sorted(changed - kernels - nodes)


def operators(changed: set[str]) -> set[str]:
    """The operators, with the kind of bounds, whose kernels changed: these hold the forward formulas."""
    one = {f"{n}, tensors" for n in ("maximum", "minimum", "fmax", "fmin") if n in changed}
    clamps = ("clamp", "clamp_min", "clamp_max")
    numbers = {f"{n}, numbers" for n in clamps if n in changed}
    return one | numbers | {f"{n}, tensors" for n in clamps if f"{n}_Tensor" in changed}
