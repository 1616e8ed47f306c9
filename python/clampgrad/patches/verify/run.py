"""`verify`: a patch proved against the installed torch, the whole way from derivatives.yaml to gradients."""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ..series import FILES, Refusal, default, named
from .compile import FAMILY, compiled
from .generate import differences, generated, patched_text

Say = Callable[[str], None]
# Keys of the result that say what a patch changed.
CODE = "generated code that changed"
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


def expected(convention: str, key: str, row: list[float], count: int) -> list[float]:
    """The gradients that the table asks for at one point."""
    if str(FILES) not in sys.path:
        sys.path.insert(0, str(FILES))
    import oracle

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
        if mode in ("forward", "jvp") and operator not in changed:
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


def verify(
    patches: list[Path] | None,
    series: str | None,
    source: Path | None,
    convention: str | None,
    quick: bool,
    say: Say,
) -> dict:
    """Proves patches, or a series, in the installed torch. `failures` is empty if all of it holds.

    Refuses what does not apply, is not taken by torchgen or does not compile.
    """
    release = torch.__version__.split("+")[0]
    if not patches:
        chosen = named(series) if series else default(release)
        patches, convention = chosen.patches, convention or chosen.convention
    convention = convention or "joint"
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as both:
        stock, new = Path(scratch, "stock"), Path(scratch, "new")
        say(f"1/5 applying to the derivatives.yaml of torch {release}")
        texts = [
            patched_text(stock, [], release, source),
            patched_text(new, patches, release, source),
        ]
        say("2/5 generating code with the installed torchgen")
        codes = list(both.map(generated, (stock, new), texts))
        changed = differences(*codes)
        kernels = {n for n in codes[1].kernels if FAMILY.match(n)}
        nodes = {
            n for n in codes[1].nodes if "Clamp" in n or "imum" in n or n[:4] in ("Fmax", "Fmin")
        }
        outside = sorted(changed - kernels - nodes)
        failures += [f"{name} changed, outside of the family" for name in outside]
        say("3/5 compiling it twice, without the patch and with it")
        libraries = list(both.map(compiled, codes, (stock, new)))
        say("4/5 gradients: stock, the control, the patch")
        asked = both.map(ask, ["gradients"] * 3, [None, *libraries])
        plain, control, patched = asked
        if differing := changes(plain["gradients"], control["gradients"]):
            failures.append("the control without the patch is not stock: " + "; ".join(differing))
        for operator, name in patched["nodes"].items():
            if not name.startswith("Proved"):
                failures.append(f"{operator} did not run the patched node but {name}")
        touched = operators(changed, texts)
        failures += against_table(patched["gradients"], convention, touched)
        say("5/5 OpInfo" + ": left out" * quick)
        checks = {} if quick else ask("opinfo", libraries[1])
        failures += checks.get("failures", [])
    return {
        "torch": torch.__version__,
        "convention": convention,
        "patches": [patch.name for patch in patches],
        CODE: sorted(changed),
        GRADIENTS: changes(plain["gradients"], patched["gradients"]),
        "opinfo samples": checks.get("checked", 0),
        "failures": failures,
    }


def operators(changed: set[str], texts: list[str]) -> set[str]:
    """The operators whose kernels, which hold the forward formulas, or helpers changed."""
    names = ("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin")
    found = {n for n in names if n in changed or f"{n}_Tensor" in changed}
    return found | {"clamp"} if texts[0] != texts[1] else found
