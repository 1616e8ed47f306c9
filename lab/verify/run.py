"""`verify`: a patch proved against the installed torch, the whole way from derivatives.yaml to gradients."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import torch

from ..series import (
    FUNCTIONS,
    NATIVE,
    SCRIPT,
    YAML,
    Claim,
    Refusal,
    default,
    files_of,
    named,
    output_of,
)
from . import torchscript
from .compile import compiled
from .generate import (
    FAMILY,
    Code,
    affected,
    differences,
    generated,
    kernels_that_differ,
    operator_of,
)
from .held import changes, convention_of, held
from .native import Added, added, compiled_here
from .text import Text, module_of, patched

ROOT = Path(__file__).resolve().parents[2]
Say = Callable[[str], None]
# Keys of the result that say what a patch changed.
CODE = "code that changed"
GRADIENTS = "gradients that changed"
SAVED = "what is saved that changed"


@dataclass
class Question:
    """What is to be proved, and how much of it."""

    patches: list[Path]
    claim: Claim = field(default_factory=Claim)
    source: Path | None = None  # a checkout, where hunks do not show functions whole
    oracle: Path | None = None  # a Python file that says what the gradients should be
    unproved: set[Path] = field(default_factory=set)  # patches to tests and documentation
    quick: bool = False  # without Inductor and OpInfo
    note: str = ""  # what is not proved whatever is found


def of_series(name: str | None, release: str) -> Question:
    """A series, proved to be what its file says."""
    chosen = named(name) if name else default(release)
    question = Question(chosen.patches, chosen.claim, unproved=chosen.unproved)
    if not chosen.fits(release):
        question.note = f"{chosen.name} is for {chosen.span}, and this is {release}"
    return question


@dataclass
class Build:
    """What a process loads before it is asked: a library, and modules in place of torch's own."""

    library: Path | None = None
    modules: dict[str, Path] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        modules = {name: str(path) for name, path in self.modules.items()}
        return {"library": self.library and str(self.library), "modules": modules}


def ask(task: str, build: Build | None = None, **question: object) -> dict:
    """One run of process.py, with no cache of compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        answer = output_of(
            [sys.executable, "-m", f"{__package__}.process", task],
            f"the checks ({task}) broke off",
            cwd=ROOT,
            input=json.dumps((build or Build()).as_dict() | question),
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache},
        )
    return json.loads(answer)


def in_torchscript(texts: list[Text], claim: Claim) -> dict:
    """The functions of symbolic_script.cpp: stock's own gradients before, those of a convention after."""
    before, after = (torchscript.gradients(text.script) for text in texts)
    found = {"failures": [], GRADIENTS: changes(before, after)}
    if differing := changes(torchscript.executed(), before):
        found["failures"].append("TorchScript's gradients are not stock's: " + "; ".join(differing))
    if texts[0].script != texts[1].script:
        found["failures"] += held(after, before, claim, set())
        found["failures"] += torchscript.not_summed(texts[1].script)
    return found


def in_torch(
    codes: list[Code],
    texts: list[Text],
    folders: list[Path],
    names: set[str],
    touched: set[str],
    q: Question,
    say: Say,
) -> dict:
    """The generated code: compiled with the patch and without, run in processes of their own."""
    say("4/7 compiling it twice, without the patch and with it")
    new = added(folders[1], *texts)
    with ThreadPoolExecutor(2) as both:
        libraries = list(both.map(compiled, codes, folders, [names] * 2, [Added(), new]))
    builds = [Build(libraries[0]), Build(libraries[1], texts[1].python)]
    found: dict = {"failures": [], GRADIENTS: [], SAVED: [], "opinfo samples": 0, "not proved": []}
    if any(FAMILY.match(name) for name in names):
        of_family(builds, touched, q, found, say)
    called = set(found.pop("called", []))
    found["not proved"] += [f"{n}: nothing here calls it" for n in new.operators if n not in called]
    say("7/7 OpInfo" + ": left out" * q.quick)
    if not q.quick:
        operators = {operator_of(n, codes[1]) for n in names} - {
            n.partition(".")[0]
            for n in new.operators  # through those that call them
        }
        of_operators(builds, sorted(operators), q, found)
    return found


def of_family(builds: list[Build], touched: set[str], q: Question, found: dict, say: Say) -> None:
    """clamp and its family, at every point of the table."""
    say("5/7 gradients: stock, the control, the patch")
    with ThreadPoolExecutor(2) as both:
        stock, control, new = both.map(ask, ["gradients"] * 3, [None, *builds])
    say("6/7 the same compiled by Inductor" + ": left out" * q.quick)
    if not q.quick:
        new["gradients"] |= ask("inductor", builds[1])["gradients"]
    before, after, failures = stock["gradients"], new["gradients"], found["failures"]
    for key, message in new["errors"].items():
        if before.pop(key, None):
            failures.append(f"{key}: {message}")
            control["gradients"].pop(key, None)
    if differing := changes(before, control["gradients"]):
        failures.append("the control without the patch is not stock: " + "; ".join(differing))
    for form, name in new["nodes"].items():
        if not name.startswith("Proved"):
            failures.append(f"{form} did not run the patched node but {name}")
    failures += held(after, before, q.claim, touched)
    found[GRADIENTS] += changes(before, after)
    for form, saved in new["saved"].items():
        if saved != stock["saved"][form]:
            line = f"{form}: {', '.join(stock['saved'][form])} -> {', '.join(saved)}"
            found[SAVED].append(line)
    found["convention"] = convention_of(after, q.claim)
    found["called"] = new["called"]


def of_operators(builds: list[Build], names: list[str], q: Question, found: dict) -> None:
    """The operators that changed, on the samples of torch's own tests."""
    question = {"operators": names, "oracle": str(q.oracle.resolve()) if q.oracle else None}
    with ThreadPoolExecutor(2) as both:
        runs = [(None, False), (builds[0], False), (builds[1], True)]
        stock, control, new = both.map(
            lambda run: ask("opinfo", run[0], check=run[1], **question), runs
        )
    for name, error in new["subclasses"].items():
        if error and not control["subclasses"].get(name):
            found["failures"].append(f"OpInfo {name}, of subclasses: {error}")
    for name, digests in stock["digests"].items():
        if digests != control["digests"].get(name):
            found["failures"].append(f"the control without the patch is not stock: {name}")
        n = sum(a != b for a, b in zip(digests, new["digests"].get(name, [])))
        if n:
            found[GRADIENTS].append(f"{name}, OpInfo: {n} of {len(digests)}")
    found["failures"] += new["failures"]
    found["failures"] += [f"{n} did not run the patched node" for n in new["stock nodes"]]
    found["opinfo samples"] = new["checked"]
    # Those of the family have been at every point of the table.
    strangers = [n for n in new["no OpInfo"] if not FAMILY.match(n)]
    found["not proved"] += [f"{n}: OpInfo has no samples of it" for n in strangers]


def check_what_is_needed() -> None:
    """Refuses where a package is missing that this needs beside torch."""
    needs = {"expecttest": "expecttest", "numpy": "numpy", "yaml": "pyyaml"}
    if missing := [package for module, package in needs.items() if not find_spec(module)]:
        raise Refusal(f"verify needs {', '.join(missing)}: pip install {' '.join(missing)}.")


def verify(q: Question, say: Say) -> dict:
    """Proves patches in the installed torch. `failures` is empty if all of the claim holds; what was
    not looked at stands under `not proved`.

    Nothing is generated or compiled where a patch changes no C++. Refuses what does not apply, is not
    taken by torchgen or does not compile.
    """
    check_what_is_needed()
    release = torch.__version__.split("+")[0]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as both:
        folders = [Path(scratch, "stock"), Path(scratch, "new")]
        say(f"1/7 applying to the text of torch {release}")
        proved = [patch for patch in q.patches if patch not in q.unproved]
        texts = [patched(f, p, release, q.source) for f, p in zip(folders, ([], proved))]
        say("2/7 the functions of TorchScript")
        found = [in_torchscript(texts, q.claim)]
        functions = {n for n, _ in set(texts[0].manual) ^ set(texts[1].manual)}
        changed: set[str] = set()
        if functions or texts[0].yaml != texts[1].yaml:
            say("3/7 generating code with the installed torchgen")
            codes = list(both.map(generated, folders, texts))
            changed = differences(*codes)
            names = affected(*codes) | ({"clamp", "clamp_Tensor"} if functions else set())
            touched = operators(kernels_that_differ(*codes))
            touched |= {"clamp, numbers", "clamp, tensors"} if functions else set()
            if names:
                found.append(in_torch(codes, texts, folders, names, touched, q, say))
    scripted = {f"{n} of TorchScript" for n, _ in set(texts[0].script) ^ set(texts[1].script)}
    result = {
        "torch": torch.__version__,
        "convention": next((f["convention"] for f in found if "convention" in f), None)
        or q.claim.convention,
        "patches": [patch.name for patch in q.patches],
        CODE: sorted(changed | functions | scripted),
        GRADIENTS: sum((f[GRADIENTS] for f in found), []),
        SAVED: sum((f.get(SAVED, []) for f in found), []),
        "opinfo samples": found[-1].get("opinfo samples", 0),
        "tests and documentation": sorted(
            {patch.name for patch in q.unproved} | {n for n in files_of(*proved) if is_test(n)}
        ),
        "not proved": [q.note] * bool(q.note)
        + unlooked(proved, texts[1])
        + found[-1].get("not proved", []),
        "failures": sum((f["failures"] for f in found), []),
    }
    result["failures"] += unexpected(result, q.claim)
    return result


def unlooked(patches: list[Path], text: Text) -> list[str]:
    """The files of patches that none of this looks at."""
    looked = {YAML, NATIVE, FUNCTIONS, SCRIPT, *filter(compiled_here, text.added), *text.headers}
    files = [n for n in files_of(*patches) if not is_test(n)]
    return [n for n in files if n not in looked and module_of(n) not in text.python]


def is_test(name: str) -> bool:
    """No gradient depends on it."""
    return name.startswith("test/")


def unexpected(result: dict, claim: Claim) -> list[str]:
    """Nothing is proved of a patch that does nothing."""
    if claim.unchanged:
        return [f"a gradient changed, {line}" for line in result[GRADIENTS]]
    return [] if result[GRADIENTS] else ["no gradient changed (--expect unchanged, if none should)"]


def operators(changed: set[str]) -> set[str]:
    """The operators, with the kind of bounds, whose kernels changed: these hold the forward formulas."""
    clamps = ("clamp", "clamp_min", "clamp_max")
    pairs = {f"{n}, tensors" for n in ("maximum", "minimum", "fmax", "fmin") if n in changed}
    numbers = {f"{n}, numbers" for n in clamps if n in changed}
    lists = (re.match(r"_foreach_(\w+?)__?(List|Scalar|ScalarList)$", name) for name in changed)
    found = {f"foreach {m[1]}, {'tensors' if m[2] == 'List' else 'numbers'}" for m in lists if m}
    return found | pairs | numbers | {f"{n}, tensors" for n in clamps if f"{n}_Tensor" in changed}
