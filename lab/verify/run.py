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
from .generate import FAMILY, affected, differences, generated, kernels_that_differ, operator_of
from .held import changes, convention_of, held
from .native import Added, added, compiled_here
from .text import Text, patched

ROOT = Path(__file__).resolve().parents[2]
Say = Callable[[str], None]
# Keys of the result that say what a patch changed.
CODE = "code that changed"
GRADIENTS = "gradients that changed"
SAVED = "what is saved that changed"
NEEDS = {"expecttest": "expecttest", "numpy": "numpy", "yaml": "pyyaml"}  # modules, packages


@dataclass
class Question:
    """What is to be proved, and how much of it."""

    patches: list[Path]
    claim: Claim = field(default_factory=Claim)
    source: Path | None = None  # a checkout, where hunks do not show functions whole
    unproved: set[Path] = field(default_factory=set)  # patches to tests and documentation
    quick: bool = False  # without Inductor and OpInfo
    note: str = ""  # what is not proved whatever is found


def of_series(name: str | None, release: str) -> Question:
    """A series, proved to be what its file says."""
    chosen = named(name) if name else default(release)
    note = f"{chosen.name} is for {chosen.span}, and this is {release}"
    return Question(
        chosen.patches,
        chosen.claim,
        unproved=chosen.unproved,
        note="" if chosen.fits(release) else note,
    )


def ask(task: str, library: Path | None = None, **question: object) -> dict:
    """One run of process.py, with no cache of compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        answer = output_of(
            [sys.executable, "-m", f"{__package__}.process", task],
            f"the checks ({task}) broke off",
            input=json.dumps({"library": library and str(library)} | question),
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache},
        )
    return json.loads(answer)


def check_what_is_needed() -> None:
    """Refuses where a package is missing that this needs beside torch."""
    if missing := [package for module, package in NEEDS.items() if not find_spec(module)]:
        raise Refusal(f"verify needs {', '.join(missing)}: pip install {' '.join(missing)}.")


def verify(q: Question, say: Say) -> dict:
    """Proves patches in the installed torch. `failures` is empty if all of the claim holds; what was
    not looked at stands under `not proved`.

    Nothing is generated or compiled where a patch changes no C++. Refuses what does not apply, is not
    taken by torchgen or does not compile.
    """
    check_what_is_needed()
    if missing := [str(patch) for patch in q.patches if not patch.is_file()]:
        raise Refusal(f"There is no {missing[0]}.")
    proved = [patch for patch in q.patches if patch not in q.unproved]
    tests = {patch.name for patch in q.unproved} | {n for n in files_of(*proved) if is_test(n)}
    found: dict = {
        "torch": torch.__version__,
        "convention": q.claim.convention,
        "patches": [patch.name for patch in q.patches],
        "tests and documentation": sorted(tests),
        "opinfo samples": 0,
        "not proved": [q.note] * bool(q.note),
    } | {key: [] for key in (CODE, GRADIENTS, SAVED, "failures")}
    with tempfile.TemporaryDirectory() as scratch:
        say(f"1/7 applying to the text of torch {found['torch']}")
        release = found["torch"].split("+")[0]
        folders = [Path(scratch, "stock"), Path(scratch, "new")]
        texts = [patched(f, p, release, q.source) for f, p in zip(folders, ([], proved))]
        found["not proved"] += unlooked(proved, texts[1])
        say("2/7 the functions of TorchScript")
        in_torchscript(texts, q.claim, found)
        if texts[0].manual != texts[1].manual or texts[0].yaml != texts[1].yaml:
            in_torch(texts, folders, q, found, say)
    found[CODE].sort()
    if q.claim.unchanged:
        found["failures"] += [f"a gradient changed, {line}" for line in found[GRADIENTS]]
    elif not found[GRADIENTS]:  # nothing is proved of a patch that does nothing
        found["failures"].append("no gradient changed (--expect unchanged, if none should)")
    return found


def in_torchscript(texts: list[Text], claim: Claim, found: dict) -> None:
    """The functions of symbolic_script.cpp: stock's own gradients before, those of a convention after."""
    before, after = (torchscript.gradients(text.script) for text in texts)
    found[GRADIENTS] += changes(before, after)
    if differing := changes(torchscript.executed(), before):
        found["failures"].append("TorchScript's gradients are not stock's: " + "; ".join(differing))
    if changed := {f"{n} of TorchScript" for n, _ in set(texts[0].script) ^ set(texts[1].script)}:
        found[CODE] += changed
        found["failures"] += held(after, before, claim, set())
        found["failures"] += torchscript.not_summed(texts[1].script)


def in_torch(texts: list[Text], folders: list[Path], q: Question, found: dict, say: Say) -> None:
    """The generated code: compiled with the patch and without, run in processes of their own."""
    say("3/7 generating code with the installed torchgen")
    both = ThreadPoolExecutor(2)
    codes = list(both.map(generated, folders, texts))
    functions = {n for n, _ in set(texts[0].manual) ^ set(texts[1].manual)}
    names = affected(*codes) | ({"clamp", "clamp_Tensor"} if functions else set())
    touched = operators(kernels_that_differ(*codes))
    touched |= {"clamp, numbers", "clamp, tensors"} if functions else set()
    found[CODE] += differences(*codes) | functions
    if not names:
        return
    say("4/7 compiling it twice, without the patch and with it")
    new = added(folders[1], *texts)
    control, mine = both.map(compiled, codes, folders, [names] * 2, [Added(), new])
    libraries = [None, control, mine]
    added_names = {n.partition(".")[0] for n in new.operators}
    called = of_family(libraries, touched, q, found, say) if any(map(FAMILY.match, names)) else []
    unused = sorted(added_names.difference(called))
    found["not proved"] += [f"{n}: nothing here calls it" for n in unused]
    say("7/7 OpInfo" + ": left out" * q.quick)
    if not q.quick:  # those that are added, through those that call them
        of_operators(libraries, {operator_of(n, codes[1]) for n in names} - added_names, found)


def of_family(libraries: list, touched: set[str], q: Question, found: dict, say: Say) -> list[str]:
    """clamp and its family, at every point of the table. Returns the operators that their backward called."""
    say("5/7 gradients: stock, the control, the patch")
    stock, control, new = ThreadPoolExecutor(2).map(ask, ["gradients"] * 3, libraries)
    say("6/7 the same compiled by Inductor" + ": left out" * q.quick)
    if not q.quick:
        new["gradients"] |= ask("inductor", libraries[2])["gradients"]
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
    return new["called"]


def of_operators(libraries: list, names: set[str], found: dict) -> None:
    """The operators that changed, on the samples of torch's own tests."""
    stock, control, new = ThreadPoolExecutor(2).map(
        lambda library: ask(
            "opinfo", library, operators=sorted(names), check=library is libraries[2]
        ),
        libraries,
    )
    failures = found["failures"]
    for name, error in new["subclasses"].items():
        if error and not control["subclasses"].get(name):
            failures.append(f"OpInfo {name}, of subclasses: {error}")
    for name, digests in stock["digests"].items():
        if digests != control["digests"].get(name):
            failures.append(f"the control without the patch is not stock: {name}")
        if n := sum(a != b for a, b in zip(digests, new["digests"].get(name, []))):
            found[GRADIENTS].append(f"{name}, OpInfo: {n} of {len(digests)}")
    failures += new["failures"]
    failures += [f"{n} did not run the patched node" for n in new["stock nodes"]]
    found["opinfo samples"] = new["checked"]
    # Those of the family have been at every point of the table.
    strangers = [n for n in new["no OpInfo"] if not FAMILY.match(n)]
    found["not proved"] += [f"{n}: OpInfo has no samples of it" for n in strangers]


def unlooked(patches: list[Path], text: Text) -> list[str]:
    """The files of patches that none of this looks at."""
    looked = {YAML, NATIVE, FUNCTIONS, SCRIPT, *filter(compiled_here, text.added), *text.headers}
    return [n for n in files_of(*patches) if n not in looked and not is_test(n)]


def is_test(name: str) -> bool:
    """No gradient depends on it."""
    return name.startswith("test/")


def operators(changed: set[str]) -> set[str]:
    """The operators, with the kind of bounds, whose kernels changed: these hold the forward formulas."""
    clamps = ("clamp", "clamp_min", "clamp_max")
    pairs = {f"{n}, tensors" for n in ("maximum", "minimum", "fmax", "fmin") if n in changed}
    numbers = {f"{n}, numbers" for n in clamps if n in changed}
    lists = (re.match(r"_foreach_(\w+?)__?(List|Scalar|ScalarList)$", name) for name in changed)
    found = {f"foreach {m[1]}, {'tensors' if m[2] == 'List' else 'numbers'}" for m in lists if m}
    return found | pairs | numbers | {f"{n}, tensors" for n in clamps if f"{n}_Tensor" in changed}
