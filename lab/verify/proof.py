"""A patch proved against the installed torch, the whole way from derivatives.yaml to gradients."""

import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import oracle

from ..series import FUNCTIONS, NATIVE, SCRIPT, YAML, Refusal, files_of
from . import torchscript
from .gradients import ROUNDED, names
from .library import changed_entries, libraries, not_built, stem
from .process import ask
from .upstream_files import MANUAL, patched, removes

FAMILY = oracle.TABLE["operators"].keys()
# Keys of the result that say what a patch changed.
CODE = "code that changed"
GRADIENTS = "gradients that changed"
SAVED = "what is saved that changed"


def verify(series, quick=False):
    """Proves a series in the installed torch. `failures` is empty if all of its claim holds; what
    was not looked at stands under `not proved`. `quick` leaves Inductor and OpInfo out.

    Refuses what does not apply, is not taken by torchgen or does not compile.
    """
    if missing := [str(patch) for patch in series.patches if not patch.is_file()]:
        raise Refusal(f"There is no {missing[0]}.")
    release = torch.__version__.split("+")[0]
    proved = [patch for patch in series.patches if patch not in series.unproved]
    found = {"convention": series.claim.convention, CODE: [], GRADIENTS: {}, "samples": 0}
    found |= {SAVED: [], "not proved": [], "failures": []}
    if not (files := [name for name in files_of(*proved) if not name.startswith("test/")]):
        raise Refusal("It changes no file but tests, so there is nothing to prove.")
    if not series.fits(release):
        found["not proved"] = [f"{series.name} is for {series.span}, and this is {release}"]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, side) for side in ("stock", "patched")]
        texts = [patched(f, p, release) for f, p in zip(folders, ([], proved))]
        if not any(name in texts[1] for name in files):
            raise Refusal(f"Nothing here knows what it changes: {', '.join(files)}.")
        found["not proved"] += unlooked(proved, *texts)
        in_torchscript(texts, series.claim, found)
        before, after = ({m[0]: m[1] for m in MANUAL.finditer(t[FUNCTIONS])} for t in texts)
        functions = sorted({after[text] for text in after.keys() - before.keys()})
        formulas = changed_entries(*texts)
        found[CODE] += functions + formulas
        stems = {stem(s) for s in formulas} | ({"clamp"} if functions else set())
        if stems:
            in_torch(folders, texts, stems, series.claim, quick, found)
        elif idle := [n for n in files if n in texts[1] and n not in (YAML, FUNCTIONS, SCRIPT)]:
            found["not proved"] += [f"{name}: no formula changed that it is for" for name in idle]
    beyond = {key for key in found[GRADIENTS] if is_of_others(key)}
    if series.claim.unchanged:
        found["failures"] += [f"{key}: a gradient changed" for key in found[GRADIENTS]]
    elif not found[GRADIENTS]:  # nothing is proved of a patch that does nothing
        found["failures"].append("no gradient changed (--expect unchanged, if none should)")
    elif series.claim.convention:
        claimed = f"and the claim is that of {series.claim.convention}, for clamp and its family"
        found["failures"] += [f"{key}: a gradient changed, {claimed}" for key in sorted(beyond)]
    if not series.claim.saved:
        found["failures"] += found[SAVED]
    return found


def is_of_others(key):
    """Whether a key of OpInfo's samples is of an operator that is not of the family."""
    return key.startswith("OpInfo ") and key.split()[1].strip(",") not in FAMILY


def unlooked(patches, before, after):
    """The files of patches that none of this looks at, or not at all of what changes there.
    No gradient depends on tests."""
    for name in (n for n in files_of(*patches) if not n.startswith("test/")):
        if name not in after:
            yield name
        elif name not in before and removes(patches, name):
            yield f"{name}: what it takes away (only what it adds is compiled)"
        elif name not in (YAML, NATIVE, FUNCTIONS, SCRIPT) and removes(patches, name):
            yield f"{name}: what it changes for operators that no formula in the patch is for"


def in_torchscript(texts, claim, found):
    """The functions of symbolic_script.cpp: stock's own gradients before,
    those of a convention after."""
    (before, wrong), (after, errors) = (torchscript.gradients(text[SCRIPT]) for text in texts)
    if changes(torchscript.executed(), before):
        found["failures"].append("TorchScript's gradients are not stock's")
    if texts[0][SCRIPT] != texts[1][SCRIPT]:
        found[CODE].append(SCRIPT)
        found[GRADIENTS] |= changes(before, after)
        found["failures"] += held(after, before, claim)[1]
        # Stock's clamp sums nothing where self is broadcast. A patch may mend
        # that, but not outside its claim.
        strange = {k for k in wrong.keys() - errors.keys() if not claim.covers(*k.split(", ")[:2])}
        errors |= {key: f"now without stock's {wrong[key]}" for key in strange}
        found["failures"] += [f"{key}: {error}" for key, error in errors.items()]


def in_torch(folders, texts, stems, claim, quick, found):
    """The generated code: compiled with the patch and without, run in processes of their own."""
    family = FAMILY if stems & FAMILY else set()
    print("compiling it twice, without the patch and with it", file=sys.stderr)
    built, added = libraries(folders, texts, stems | family)
    found["not proved"] += not_built(folders[1])
    called = set()
    if family:
        words = ["aot_eager"], ["aot_eager"], ["aot_eager", "inductor"][: 2 - quick]
        stock, after, ran = compared("table", built, words, found)
        found["convention"], failures = held(after, stock, claim)
        found["failures"] += failures
        called = set().union(*ran.values())
    missing = sorted(name for name in added if f"aten::{name}" not in called)
    found["not proved"] += [f"{name}: nothing here calls it" for name in missing]
    if not quick:  # those that are added, through those that call them
        operators = sorted((stems | family) - added)
        _, after, ran = compared("samples", built, [operators] * 3, found)
        found["samples"] = sum(map(len, after.values()))
        # Those of the family have been at every point of the table.
        missing = {*operators} - {key.split()[1].strip(",") for key in ran} - FAMILY
        found["not proved"] += [f"{name}: OpInfo has no samples of it" for name in sorted(missing)]


def compared(task, built, words, found):
    """Gradients of stock and with the patch, and what ran there; without the patch
    they must be those of stock."""
    sides = [(task, library, *given) for library, given in zip(["", *built], words)]
    answers = ThreadPoolExecutor(2).map(lambda side: ask(*side), sides)
    (stock, _, _, kept), (same, wrong_before, _, kept_before), (after, wrong, ran, kept_after) = (
        answers
    )
    found[SAVED] += saves(kept, kept_after)
    found["failures"] += [f"{line} (without the patch)" for line in saves(kept, kept_before)]
    for key in stock:
        if key not in same or differ(stock[key], same[key]).any():
            found["failures"].append(f"{key}: without the patch it is not stock's")
    for key in sorted(wrong.keys() - wrong_before.keys()):
        found["failures"].append(f"{key}: {wrong[key]}")
    for key, called in ran.items():
        nodes = [name for name in called if "Backward" in name]
        if not nodes or any("Proved" not in name for name in nodes):
            found["failures"].append(f"{key}: not the patched node alone ran, but {sorted(nodes)}")
    found[GRADIENTS] |= changes(stock, after)
    return stock, after, ran


def saves(before, after):
    """What nodes save after, and not before, or the other way round."""
    for key in sorted(before.keys() | after.keys()):
        old, new = (Counter(side.get(key, ())) for side in (before, after))
        if old != new:
            said = [
                f"{how} {', '.join(sorted(what))}"
                for how, what in (("no more", old - new), ("now", new - old))
                if what
            ]
            yield f"{key}: it saves {' and '.join(said)}"


# ---- Claims --------------------------------------------------------------------------------------

# Everywhere {operator, kind, mode: rows}, where a row has the arguments of a
# point, g, and the gradients.


def differ(a, b):
    """Which rows are not the same; two NaNs are."""
    assert len(a) == len(b) > 0, "no points, so that nothing would be compared"
    return ~((a == b) | (a.isnan() & b.isnan())).all(1)


def changes(a, b):
    """Operators, kinds and modes with other gradients: in how many rows, of how many; in
    all of them where `b` raises."""
    wrong = {k: differ(a[k], b[k]) if k in b else torch.ones(len(a[k])) for k in a}
    counts = {k: (int(rows.sum()), len(rows)) for k, rows in wrong.items()}
    return {key: count for key, count in counts.items() if count[0]}


def group(key):
    """The kernels that a mode reaches: each has forward mode of its own."""
    operator, kind, mode = key.split(", ")
    return "clamp" if "of clamp" in mode else operator, kind, "foreach" in mode


def selected(operator, args, shares):
    """The shares of forward mode on 2.15. Beside a NaN it is not the transpose: a comparison with a
    NaN is false, and the tangent is that of the argument that is then selected."""
    if operator in ("fmax", "fmin"):
        return shares
    chosen = torch.ones_like(args[0])
    if operator == "clamp":
        x, low, high = args
        beyond = torch.where(x < low, 1, torch.where(x > high, 2, 0))
        chosen = torch.where(low > high, 2, beyond)
    alone = torch.stack([(chosen == i).double() for i in range(len(args))])
    return torch.where(torch.stack(args).isnan().any(0), alone, shares)


def expected(convention, key, rows, forward="transpose"):
    """The rows as the table asks for them."""
    operator, kind, mode = key.split(", ")
    *args, g = rows[:, : len(oracle.TABLE["operators"][operator]["arguments"]) + 1].unbind(1)
    factors = oracle.factors(operator, kind, convention, args)
    if "forward mode" in mode and forward == "2.15" and kind == "tensors":
        factors = selected(operator, args, factors)
    return torch.stack([*args, g, *(oracle.scaled(g, f) for f in factors)], 1)


def tied(convention, key, rows):
    """The gradient of self, as if it were equal to min alone: pairs of arguments see a
    tie where forward sees none."""
    x, _, _, *g = rows[:, :4].unbind(1)
    wanted = expected(convention, key, torch.stack([x, x, x + 1, *g], 1))
    return torch.cat([rows[:, :4], wanted[:, 4:5], rows[:, 5:]], 1)


def held(found, stock, claim):
    """The convention of all that a patch covers, that of the claim or else the one that fits best;
    and where the gradients are others, one example for each key.

    What it does not cover has stock's gradients, and so have forward mode where the patch
    changed nothing (it is no transpose at a NaN), and lists of numbers, which the table
    does not have of all operators.
    """
    changed = set() if claim.unchanged else {group(key) for key in changes(stock, found)}

    def failures(convention):
        for key, rows in found.items():
            operator, kind, mode = key.split(", ")
            kinds = oracle.TABLE["operators"][operator]["rows"][0]
            of_table = claim.covers(operator, kind) and kind in kinds
            of_table &= "forward mode" not in mode or group(key) in changed
            if not of_table and key not in stock:
                continue
            wanted = expected(convention, key, rows, claim.forward) if of_table else stock[key]
            if mode.endswith(ROUNDED):  # stock does not follow its forward there; a patch may
                for other in (stock[key], tied(convention, key, rows)):
                    wanted = torch.where(differ(rows, other)[:, None], wanted, other)
            yield from said(key, rows, wanted, convention if of_table else "stock")

    conventions = [claim.convention] if claim.convention else oracle.EXACT
    return min(((name, [*failures(name)]) for name in conventions), key=lambda item: len(item[1]))


def said(key, rows, wanted, whose):
    """For each argument with a wrong gradient, the first point where it
    has one, and the two values."""
    operator, _, mode = key.split(", ")
    named = [*names(operator), "g"]
    what = "tangent along" if "forward mode" in mode else "gradient of"
    for column, name in enumerate(named[: rows.shape[1] - len(named)], len(named)):
        for i in differ(rows[:, [column]], wanted[:, [column]]).nonzero()[:1, 0].tolist():
            *point, got, right = (
                f"{n:.12g}" for n in (*rows[i, : len(named)], rows[i, column], wanted[i, column])
            )
            at = ", ".join(f"{name} = {value}" for name, value in zip(named, point))
            where = f"{key}: at {at} (row {i} of {len(rows)})"
            yield f"{where} the {what} {name} is {got}, not {right} as {whose} has it"
