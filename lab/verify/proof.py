"""A patch proved against the installed torch, the whole way from derivatives.yaml to gradients."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ..series import FUNCTIONS, SCRIPT, Refusal, files_of, output_of
from . import torchscript
from .claims import changes, differ, held
from .library import FAMILY, changed_entries, libraries, stem
from .upstream_files import MANUAL, patched

ROOT = Path(__file__).resolve().parents[2]
# Keys of the result that say what a patch changed.
CODE = "code that changed"
GRADIENTS = "gradients that changed"


def ask(task, *arguments):
    """One run of process.py, with no cache of compiled code."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", f"{__package__}.process", f"{scratch}/answer", task]
        env = {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache", "CLAMPGRAD_GRADIENT": ""}
        refusal = f"the checks ({task}) broke off"
        output_of([*command, *arguments], refusal, cwd=ROOT, env=os.environ | env)
        return torch.load(f"{scratch}/answer")


def verify(series, quick=False):
    """Proves a series in the installed torch. `failures` is empty if all of its claim holds; what was not looked at
    stands under `not proved`.

    Nothing is generated or compiled where a patch changes no C++. Refuses what does not apply, is not taken by torchgen
    or does not compile. `quick` leaves Inductor and OpInfo out.
    """
    if missing := [str(patch) for patch in series.patches if not patch.is_file()]:
        raise Refusal(f"There is no {missing[0]}.")
    release = torch.__version__.split("+")[0]
    proved = [patch for patch in series.patches if patch not in series.unproved]
    found = {"convention": series.claim.convention, CODE: [], GRADIENTS: {}, "samples": 0}
    found |= {"not proved": [], "failures": []}
    if not series.fits(release):
        note = f"{series.name} is for {series.span}, and this is {release}"
        found["not proved"].append(note)
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, side) for side in ("text", "patched text")]
        texts = [patched(f, p, release) for f, p in zip(folders, ([], proved))]
        found["not proved"] += unlooked(proved, texts[1])
        in_torchscript(texts, series.claim, found)
        functions = changed_functions(MANUAL, FUNCTIONS, texts)
        formulas = changed_entries(*texts)
        found[CODE] += functions + formulas
        stems = {stem(s) for s in formulas} | ({"clamp"} if functions else set())
        if stems & set(FAMILY):
            stems |= set(FAMILY)
        if stems:
            in_torch(Path(scratch), texts, stems, series.claim, quick, found)
    if series.claim.unchanged:
        lines = (f"{key}: a gradient changed" for key in found[GRADIENTS])
        found["failures"] += lines
    elif not found[GRADIENTS]:  # nothing is proved of a patch that does nothing
        found["failures"].append("no gradient changed (--expect unchanged, if none should)")
    return found


def unlooked(patches, texts):
    """The files of patches that none of this looks at. No gradient depends on tests."""
    return [n for n in files_of(*patches) if n not in texts and not n.startswith("test/")]


def changed_functions(pattern, name, texts):
    before, after = ({m[0]: m for m in pattern.finditer(text[name])} for text in texts)
    return sorted({after[text].group(1) for text in after.keys() - before.keys()})


def in_torchscript(texts, claim, found):
    """The functions of symbolic_script.cpp: stock's own gradients before, those of a convention after."""
    before, after = (torchscript.gradients(text[SCRIPT]) for text in texts)
    if changes(torchscript.executed(), before):
        found["failures"].append("TorchScript's gradients are not stock's")
    if texts[0][SCRIPT] != texts[1][SCRIPT]:
        found[CODE].append(SCRIPT)
        found[GRADIENTS] |= changes(before, after)
        found["failures"] += held(after, before, claim)[1] + torchscript.not_summed(
            texts[1][SCRIPT]
        )


def in_torch(directory, texts, stems, claim, quick, found):
    """The generated code: compiled with the patch and without, run in processes of their own."""
    print("compiling it twice, without the patch and with it", file=sys.stderr)
    (control, mine), added = libraries(directory, texts, stems)
    called = []
    print("asking gradients", file=sys.stderr)
    if stems & set(FAMILY):
        called = of_family(control, mine, claim, quick, found)
    found["not proved"] += [
        f"{name}: nothing here calls it" for name in sorted(added.difference(called))
    ]
    if not quick:  # those that are added, through those that call them
        of_samples(control, mine, sorted(stems - added), found)


def of_family(control, mine, claim, quick, found):
    """clamp and its family, at every point of the table. Returns the operators that their backward called."""
    answers = ThreadPoolExecutor(2).map(ask, ["table"] * 3, ["", control, mine])
    (stock, *_), (same, *_), (after, errors, nodes, called) = answers
    if not quick:
        after |= ask("inductor", mine)
    for key in errors.keys() & stock.keys():
        found["failures"].append(f"{key}: {errors[key]}")
        del stock[key], same[key]
    if differing := changes(stock, same):
        found["failures"] += [f"{key}: without the patch it is not stock's" for key in differing]
    wrong = [
        f"{key}: not the patched node but {n}" for key, n in nodes.items() if "Proved" not in n
    ]
    found["convention"], failures = held(after, stock, claim)
    found["failures"] += wrong + failures
    found[GRADIENTS] |= changes(stock, after)
    return called


def of_samples(control, mine, operators, found):
    """The operators that changed, on the samples of torch's own tests."""
    tasks = ("samples", "checked samples", "checked samples")
    answers = ThreadPoolExecutor(2).map(lambda *a: ask(*a, *operators), tasks, ["", control, mine])
    (stock, *_), (same, _, wrong_before, _), (after, nodes, wrong, unknown) = answers
    for name, message in wrong.items():
        if name not in wrong_before:
            found["failures"].append(f"OpInfo {name}: {message}")
    for name, of_stock in stock.items():
        if counted(of_stock, same[name]):
            found["failures"].append(f"OpInfo {name}: without the patch it is not stock's")
        if n := counted(of_stock, after[name]):
            found[GRADIENTS][f"OpInfo {name}"] = (n, len(of_stock))
        for node in (n for n in nodes.get(name, ()) if "Proved" not in n):
            found["failures"].append(f"OpInfo {name}: not the patched node but {node}")
    found["samples"] = sum(map(len, after.values()))
    # Those of the family have been at every point of the table.
    strangers = [operator for operator in unknown if operator not in FAMILY]
    found["not proved"] += [f"{operator}: OpInfo has no samples of it" for operator in strangers]


def counted(some, others):
    """In how many samples the gradients differ."""
    return sum(
        any(differ(a.reshape(1, -1), b.reshape(1, -1)).any() for a, b in zip(*pair))
        for pair in zip(some, others, strict=True)
    )
