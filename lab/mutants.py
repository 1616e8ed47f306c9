"""Breaks the code by rule, one place at a time, and reports what no test notices.

    python -m lab.mutants build
        all of it in one library, chosen while it runs
    python -m lab.mutants run [--sample N] [--only TEXT]
        writes records/mutants.jsonl once all have run; `nox -s mutants` sets the paths

A comparison, a choice, a mask operator or a condition becomes its neighbour, and a statement is
left out; the formulas of derivatives.yaml change in the same way. Each mutant runs in its own
process, forked from one that has everything imported. It runs cells of testing/matrix, which take
two seconds in all, then the tests that noticed the last mutants of its file, then those of its
folder, until one fails, or the process crashes, or takes far longer or more memory than any test
of the unbroken library. An interrupted run goes on, at a later commit too, as long as the package
is as it was; what a file of tests has decided is tried again when that file has changed.
waived_mutants.yaml lists what no test can notice.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
import yaml

import records
from lab.sessions import PACKAGE
from testing.quick_build import build_quickly, copy_to

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
TREE, LIB, RAN, BUILT_FROM = WORK / "tree", WORK / "lib", WORK / "ran.jsonl", WORK / "built_from"
COMPILED = WORK / "compiled"
VARIABLE, SYMBOL = "CLAMPGRAD_MUTANT", "clampgrad_mutant"
DECLARED = f'extern "C" __attribute__((visibility("default"))) int {SYMBOL};\n'
DEFINED = f'#include <cstdlib>\n{DECLARED}int {SYMBOL} = atoi(getenv("{VARIABLE}") ?: "0");\n'
CELLS = 600
MOST_LIKELY = 8  # how many tests that noticed the last mutants of a file come first
SECONDS = 1800  # per mutant, if it waits for ever
CPU_SECONDS = 150  # for one test, or for all cells, if it computes for ever
BYTES = 16 << 30  # per mutant: one that reads a size from nowhere may ask for all that there is

# For each folder, its tests as they run. The rules break every file of these folders.
KERNELS = [f"test/{test}" for test in (
    *(f"table/test_{name}.py" for name in ("tensors", "errors")),
    *(f"kernels/test_{name}.py" for name in ("values", "gate", "operator_counts", "devices")),
    *(f"table/test_{name}.py" for name in ("defects", "rounding", "in_place", "nan")),
    "matrix/test_fuzz.py::test_found_once", "matrix/test_matrix.py::test_every_form_compiled", "matrix/test_refused.py",
    "transforms/test_func.py", "transforms/test_func_tensors.py", "transforms/test_forward.py", "pin/test_pin_calls.py",
    "kernels/test_kernels.py::test_what_is_broadcast",
    "kernels/test_kernels.py::test_nothing_that_is_broadcast_is_copied",
    "compile/test_compile_memory.py::test_bounds_that_are_constant_tensors",
    "compile/test_compile_memory.py::test_an_input_that_is_written",
    "compile/test_compile_memory.py::test_only_an_input_that_is_written_is_copied",
    "compile/test_compile_memory.py::test_no_graph_has_an_operator_for_what_is_only_compared",
    "compile/test_compile_memory.py::test_the_gradient_is_that_of_eager_mode",
    "compile/test_compile_training.py::test_a_changing_number_used_twice",
    "compile/test_compile_training.py::test_a_changing_number_in_a_new_process",
    "compile/test_compile_training.py::test_an_integer_that_changes_guards_nothing",
    "compile/test_export.py::test_a_gradient_that_no_trace_holds",
    "table/test_table.py",  # of what the cells are about, in more forms
)]  # fmt: skip
PIN = [f"test/pin/test_pin{name}.py" for name in (
    "", "_tasks", "_calls", "_misuse", "_reach", "_follows",
)]  # fmt: skip
FOLDERS = ("base", "functorch", "kernels", "kernels/rules", "ops")
TESTS = dict.fromkeys([*(f"csrc/{folder}" for folder in FOLDERS), "derivatives.yaml"], KERNELS)
TESTS["csrc/pin"] = PIN
CHECK = "csrc/kernels/rules/check.cpp"  # of the compiler, which would refuse most mutants of a rule
WAIVED = yaml.safe_load((ROOT / "lab/waived_mutants.yaml").read_text())


@dataclass(frozen=True)
class Mutant:
    file: str
    at: str  # line:column
    start: int
    end: int
    original: str
    replacement: str

    def is_waived(self) -> bool:
        return " ".join(self.original.split()) in WAIVED.get(self.file, ())

    def __str__(self) -> str:
        return " ".join(f"{self.file}:{self.at}: {self.original} -> {self.replacement}".split())

    def around(self, number: int) -> tuple[str, str]:
        """Returns the text before and behind the code that makes it the mutant's while this number
        is chosen."""
        on = f"::{SYMBOL} == {number}"
        if self.replacement == ";":
            return f"if (!({on})) {{ ", " }"
        if self.replacement == f"!({self.original})":  # a condition, of any type
            return f"(({on}) != bool(", "))"
        return f"({on} ? ({self.replacement}):(", "))"


# ---- C++ -----------------------------------------------------------------------------------------

NEIGHBOURS = {"lt": "le", "le": "lt", "eq": "le", "quarter_of": "half_of"}
NEIGHBOURS |= {"larger": "", "lesser": "", "half_of": ""}  # their first argument
INFIX = {" & ": " | ", " | ": " & ", " && ": " || ", " || ": " && ", " == ": " != "}
INFIX |= {" != ": " == ", " < ": " <= ", " <= ": " < "}
# What stands before a call, and not before the name of a function that is declared.
BEFORE = re.compile(r"(\breturn|[(,=|&?:{!^;])\s*$")
CALL = re.compile(
    rf"\b((?:\w+::)*(?:template )?)({'|'.join(NEIGHBOURS)}|select|logical_not<\w+>)\("
)
OPERAND = r"!?[A-Za-z_][\w.]*(?:\([\w.:, ]*\))?"
PAIR = re.compile(  # in a look-ahead: what is refused may overlap with what is not
    rf"(?<![\w.>)!*~:-])(?=({OPERAND}({'|'.join(map(re.escape, INFIX))}){OPERAND})(?![\w.(<:\[]))"
)
# How tightly an operator binds; and what may stand around an expression besides looser ones.
BINDS = {"<": 6, "<=": 6, "==": 5, "!=": 5, "&": 4, "|": 3, "&&": 2, "||": 1}
AROUND = {*"(,=?:{}[];)", "return"}
IF = re.compile(r"(?<!else )\bif \(|(?<=else )if \(")
WORDS = {  # a condition, and the sets of arguments that rules/conventions.h names
    rf"(?:(?<=[^=!<>]= )|(?<=, )|(?<=\()|(?<=return ))(?!mask )({OPERAND})(?= \? )": r"!(\1)",
    r"\bk(Self|Other)Bit\b": r"kBothArgs",
    r"\bkBothArgs\b": r"kSelfBit",
    r"\bk(XBit|LoBit|AllArgs)\b": r"kHiBit",
    r"\bkHiBit\b": r"kXBit",
}
STATEMENT = re.compile(  # a call or an assignment, behind another statement or a comment
    r"[;{}](?: *//[^\n]*)?\n(?: *//[^\n]*\n|\n)* +((?:::)?(?!return\b)[\w:.\[\]>-]+(?:\(| = ))"
)
# What the compiler needs as a constant, reads as something else or not
# at all; a loop that must end.
SKIPPED = re.compile(
    r"//[^\n]*|\"[^\"\n]*\"|^#if defined\((?:__x86_64__|CLAMPGRAD_WITH_CUDA)\)$[^#]*^#endif|^#[^\n]*|\bif constexpr \([^{]*"
    r"|\b(?:static_assert|sizeof)\b[^;]*|\btemplate <[^{;]*?>\n|\b(?:using|constexpr) [^;{(]*=[^;]*;"
    r"|\bdecltype\([^()]*\)|\bfor \([^{]*",
    re.MULTILINE,
)
CONSTEXPR = re.compile(r"(?<!if )\bconstexpr [^;{}=]*\([^;{}]*\{")


def bracket(text: str, start: int) -> tuple[int, list[str]]:
    """Where the bracket ends that begins at `start`, and what is in it, by commas."""
    depth, parts = 0, [""]
    for i in range(start, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if not depth:
            return i + 1, parts
        if depth == 1 and text[i] == ",":
            parts.append("")
        elif i > start:
            parts[-1] += text[i]
    raise ValueError(text[start : start + 80])


def places_of_cpp(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what stands there instead)."""
    spans = [m.span() for m in SKIPPED.finditer(text)]
    spans += [(m.start(), bracket(text, m.end() - 1)[0]) for m in CONSTEXPR.finditer(text)]

    def matches(pattern: re.Pattern, group: int = 0) -> Iterator[re.Match]:
        for m in pattern.finditer(text):
            if not any(a <= m.start(group) < b for a, b in spans):
                yield m

    for m in matches(CALL):
        (end, arguments), (scope, name) = bracket(text, m.end() - 1), m.groups()
        inside = ",".join(arguments)
        if not BEFORE.search(text, 0, m.start()):
            continue
        if name.startswith("logical_not"):
            yield m.start(), end, f"{name[12:-1]}({inside})"
        elif name in NEIGHBOURS:
            neighbour = NEIGHBOURS[name]
            yield m.start(), end, f"{scope}{neighbour}({inside})" if neighbour else arguments[0]
        elif len(arguments) == 3 and "all_true" not in inside:
            yield m.start(), end, f"{scope}select({arguments[0]},{arguments[2]},{arguments[1]})"
    last = 0
    for m in matches(PAIR):
        binds, end = BINDS[m[2].strip()], m.end(1)
        before = re.search(r"(\w+|[=<>&|!]+|\S)\s*$", text[: m.start()])
        after = re.match(r"\s*(\w+|[=<>&|!]+|\S)", text[end:])
        around = [t[1] for t in (before, after) if t]
        if m.start() >= last and all(t in AROUND or BINDS.get(t, 9) <= binds for t in around):
            instead = " <= " if re.match(r"\w == ", m[1]) else INFIX[m[2]]  # values have no !=
            yield m.start(), end, m[1].replace(m[2], instead)
            last = end
    for m in matches(IF):
        end = bracket(text, m.end() - 1)[0] - 1
        if not re.search(r";|[^=!<>]=[^=]", text[m.end() : end]):
            yield m.end(), end, f"!({text[m.end() : end]})"
    for pattern, instead in WORDS.items():
        for m in matches(re.compile(pattern)):
            yield *m.span(), m.expand(instead)
    for m in matches(STATEMENT, 1):
        end = bracket(text, m.end() - 1)[0] if m[1].endswith("(") else m.end()
        if m[1].endswith(" = ") or text[end] in ";.":
            while text[end] != ";":
                end = bracket(text, end)[0] if text[end] in "([{" else end + 1
            yield m.start(1), end + 1, ";"


FORMULAS = {
    r"PairOperator::maximum": r"PairOperator::minimum",
    r"PairOperator::minimum": r"PairOperator::maximum",
    r"Gradient::min_norm": r"Gradient::half",
    r"\bmaximize\b": r"!maximize",
    r"std::array\{(\w+), (\w+)(.*?)\}": r"std::array{\2, \1\3}",
    r"(\w+Args)\{\{(\w+), (\w+)(.*?differentiated)\}": r"\1{{\3, \2\4}",
    r"at::where\((\w+), grad, 0\)": r"at::where(\1, 0, grad)",
    r"(clamp_mingrad_backward\(grad, self), (\S+), (\S+)\)": r"\1, \3, \2)",
}


def places_of_formulas(text: str) -> Iterator[tuple[int, int, str]]:
    for line in re.finditer(r"(?m)^  \w.*", text):
        for pattern, instead in FORMULAS.items():
            for m in re.compile(pattern).finditer(text, *line.span()):
                yield *m.span(), m.expand(instead)


# ---- All of them ---------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    paths = (p for key in TESTS for p in (ROOT / key, *sorted((ROOT / key).glob("*.[ch]*"))))
    names = (p.relative_to(ROOT).as_posix() for p in paths if p.is_file())
    return {name: (ROOT / name).read_text() for name in names if name != CHECK}


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    places = places_of_formulas if file.endswith(".yaml") else places_of_cpp
    for start, end, replacement in sorted(places(text), key=lambda p: (p[0], -p[1])):
        line, original = text.count("\n", 0, start) + 1, text[start:end]
        at = f"{line}:{start - text.rfind(chr(10), 0, start)}"
        yield Mutant(file, at, start, end, original, replacement)


def mutants() -> list[Mutant]:
    return [m for file, text in sources().items() for m in mutants_of(file, text)]


def instrument(text: str, numbered: list[tuple[int, Mutant]]) -> str:
    """Returns the text with all its mutants, which stand one behind or in another: the outer ones
    come first."""
    added, pairs = [], itertools.combinations([m for _, m in numbered], 2)
    assert not any(a.start < b.start < a.end < b.end for a, b in pairs)
    for k, m in numbered:
        before, after = m.around(k)
        added += [(m.start, 1, k, before), (m.end, 0, -k, after)]
    parts, last = [], 0
    for at, *_, words in sorted(added):
        parts += [text[last:at], words]
        last = at
    return "".join([*parts, text[last:]])


def hash_files(files: list[str], of: str = "") -> str:
    """Returns a hash of the files, and of what else an outcome depends on."""
    digest = hashlib.sha256(of.encode())
    for file in files:
        if (ROOT / file).is_file():
            digest.update(file.encode() + (ROOT / file).read_bytes())
    return digest.hexdigest()


def hash_build() -> str:
    """Hashes all but the files of tests: those of the package, and what tests share."""
    files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files += [*PACKAGE, "test", "testing", "conftest.py", "lab/mutants.py"]
    listed = subprocess.check_output(files, cwd=ROOT, text=True).split("\0")
    shared = [file for file in listed if not re.match(r"test/.*/?test_\w+\.py$", file)]
    return hash_files(sorted(shared), f"{version('torch')} {sys.version}")


def is_built() -> bool:
    return BUILT_FROM.exists() and BUILT_FROM.read_text() == hash_build()


def build() -> None:
    if is_built():
        return print("built before from the same files; what has run is kept")
    BUILT_FROM.unlink(missing_ok=True)
    now = hash_build()
    copy_to(TREE)
    numbered = [*enumerate(mutants(), 1)]
    for file, text in sources().items():
        start = "" if file.endswith(".yaml") else DECLARED
        (TREE / file).write_text(
            start + instrument(text, [n for n in numbered if n[1].file == file])
        )
    (TREE / CHECK).unlink()
    one = TREE / "csrc/base/convention.cpp"
    one.write_text(f"{one.read_text()}\n{DEFINED}")
    build_quickly(TREE, LIB, CFLAGS="-include immintrin.h")
    BUILT_FROM.write_text(now)


# ---- Running -------------------------------------------------------------------------------------


def chosen_cells() -> dict[str, Any]:
    """Calls in the plainest form and context, and drawn ones in others, by name."""
    from testing.matrix.draw import draw
    from testing.matrix.run import calls

    order = random.Random(0)
    drawn = filter(None, (draw(order) for _ in itertools.count()))
    cells = calls()[:: len(calls()) // CELLS] + [next(drawn) for _ in range(CELLS)]
    return {repr(cell): cell for cell in cells}


class FirstFailure:
    """Finds the test that fails in a run of pytest, and limits the processor time of each."""

    def __init__(self) -> None:
        self.test: str | None = None

    def pytest_runtest_logstart(self) -> None:
        limit_cpu()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid


def limit_cpu() -> None:
    """Ends this process by SIGXCPU when it has computed for CPU_SECONDS from now."""
    now = math.ceil(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (now + CPU_SECONDS, resource.RLIM_INFINITY))


def report_first_failure(
    k: int,
    cells: dict[str, Any],
    tests: list[str],
    likely: list[str],
    compiled: str,
    send_end,
) -> None:
    """In a process of its own, with a folder of its own for Inductor's cache, which takes the code
    of one mutant for that of another."""
    from testing.matrix.run import check
    from testing.processes import renew_thread_pool

    renew_thread_pool()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # or pytest would end as if a test had failed
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, resource.RLIM_INFINITY))
    limit_cpu()
    # Processes that a test starts have these, too.
    os.environ |= {VARIABLE: str(k), "TORCHINDUCTOR_CACHE_DIR": compiled}
    library = ctypes.CDLL(str(next(LIB.rglob("libclampgrad*"))))
    ctypes.c_int.in_dll(library, SYMBOL).value = k
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    quiet += ["-m", "not slow", "-k", "not any_bytecode"]

    def find_failing_test(*chosen: str) -> str | None:
        failure = FirstFailure()
        code = pytest.main([*quiet, *chosen], plugins=[failure])
        assert code != pytest.ExitCode.USAGE_ERROR, chosen  # there is no such test
        return None if code == pytest.ExitCode.OK else failure.test or chosen[0]

    def is_failing(cell) -> bool:
        try:
            check(cell)
        except OSError:
            raise  # of this machine
        except BaseException:  # pytest.fail and pytest.skip raise a BaseException
            return True
        return False

    def failures() -> Iterator[str | None]:
        yield from (name for name, cell in cells.items() if is_failing(cell))
        yield find_failing_test(*likely) if likely else None
        yield from map(find_failing_test, tests)

    send_end.send(next(filter(None, failures()), None))


class WorkerKilled(Exception):
    """Somebody, or a system short of memory or of space, has ended a worker, which says nothing
    about tests."""


STARTING = Lock()
FROM_OUTSIDE = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGHUP, -signal.SIGQUIT}
CRASH, NO_END = "a crash", "no end"


def outcome(*asked) -> str | None:
    """What failed."""
    context = multiprocessing.get_context("fork")
    compiled = tempfile.mkdtemp(dir=COMPILED)
    # Or another worker would inherit `send_end`, and the end of this one go unnoticed.
    with STARTING:
        receive_end, send_end = context.Pipe(duplex=False)
        worker = context.Process(target=report_first_failure, args=(*asked, compiled, send_end))
        worker.start()
        send_end.close()
    try:
        return receive_end.recv() if receive_end.poll(SECONDS) else NO_END
    except EOFError:
        worker.join()
        code = worker.exitcode or 0
        if code == -signal.SIGXCPU:
            return NO_END
        if code in FROM_OUTSIDE or code > 0:  # an exception of the worker's own
            raise WorkerKilled(f"a worker has ended with {code}") from None
        return CRASH
    finally:
        worker.kill()
        worker.join()
        shutil.rmtree(compiled, ignore_errors=True)


def run(chosen: list[tuple[int, Mutant]]) -> None:
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    cells = chosen_cells()
    shutil.rmtree(COMPILED, ignore_errors=True)  # of a run that was ended
    COMPILED.mkdir(parents=True)
    stamped = functools.cache(stamp)  # of the tests as they are imported now: they may change
    for _, mutant in chosen:
        for by in (None, "a cell", *tests_of(mutant)):
            stamped(deciding_test_files(mutant, by))
    pytest.main(["--collect-only", "-qq", *KERNELS, *PIN])  # imports them, once for all
    for tests in ([], KERNELS, PIN) if chosen else ():
        if killed := outcome(0, {} if tests else cells, tests, []):
            sys.exit(f"it fails where nothing is broken: {killed}")

    stopped = Event()
    likely: dict[str, list[str]] = defaultdict(list)  # by file: what noticed its last mutants

    def one(numbered):
        if stopped.is_set():
            return
        k, mutant = numbered
        tests, noticed = tests_of(mutant), likely[mutant.file]
        killed = outcome(k, {} if tests is PIN else cells, tests, noticed[:MOST_LIKELY])
        if killed not in (None, CRASH, NO_END, *cells):
            noticed[:] = [killed, *(name for name in noticed if name != killed)]
        print("killed  " if killed else "SURVIVES", mutant, flush=True)
        with RAN.open("a") as file:
            # On a line of its own, also if the row before it was cut off.
            row = [str(mutant), killed, stamped(deciding_test_files(mutant, killed))]
            file.write(f"\n{json.dumps(row)}\n")

    with ThreadPool(int(os.environ.get("MAX_JOBS", 2))) as pool:
        try:
            for _ in pool.imap_unordered(one, chosen):
                pass
        except BaseException:
            stopped.set()
            for worker in multiprocessing.active_children():
                worker.kill()
            raise


def tests_of(mutant: Mutant) -> list[str]:
    return TESTS.get(mutant.file) or TESTS[mutant.file.rpartition("/")[0]]


def deciding_test_files(mutant: Mutant, killed: str | None) -> tuple[str, ...]:
    """The files of tests that an outcome rests on: the one that failed, none if that was a cell,
    or else all: any may have crashed."""
    files = dict.fromkeys(test.partition("::")[0] for test in tests_of(mutant))
    if killed not in (None, CRASH, NO_END):
        return tuple(file for file in files if file == killed.partition("::")[0])
    return tuple(files)


def stamp(files: tuple[str, ...]) -> str:
    """What an outcome rests on: these files of tests, and what is built."""
    return hash_files([*files], BUILT_FROM.read_text())


def load_outcomes(every: list[Mutant]) -> dict[str, str | None]:
    """What killed each that ran in this build, with the tests of now."""
    known = {str(mutant): mutant for mutant in every}
    stamped = functools.cache(stamp)
    return {
        name: killed
        for name, killed, of in rows_of(RAN)
        if name in known and of == stamped(deciding_test_files(known[name], killed))
    }


def rows_of(file: Path) -> Iterator[list]:
    """Those that are whole."""
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            if isinstance(row := json.loads(line), list) and len(row) == 3:
                yield row


def record(every: list[Mutant]) -> None:
    """A row per file, once all have run."""
    done, rows = load_outcomes(every), []
    for file, file_mutants in itertools.groupby(every, lambda m: m.file):
        made = [str(m) for m in file_mutants]
        survived = [m for m in made if m in done and not done[m]]
        killed = sum(m in done for m in made) - len(survived)
        rows.append({"file": file, "made": len(made), "killed": killed, "survived": survived})
    killed, survive = sum(r["killed"] for r in rows), sum(len(r["survived"]) for r in rows)
    print(f"{killed} killed, {survive} survive, {len(every) - len(done)} have not run")
    if len(done) == len(every):
        records.write("mutants", rows, **records.here())


def count_from_1(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{count} is none")
    return count


def main() -> bool | None:  # whether one survives, or has not run
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("--only", default="", help="those with this text")
    parser.add_argument("--sample", type=count_from_1, help="that many of them, by chance")
    given = parser.parse_args()
    if given.what == "build":
        return build()
    if not is_built():
        sys.exit("what is built is of other files: `nox -s mutants` builds it again")
    every = [(k, m) for k, m in enumerate(mutants(), 1) if not m.is_waived()]
    chosen = [(k, m) for k, m in every if given.only in str(m)]
    if not chosen:
        sys.exit(f"no mutant has this text: {given.only}")
    chosen = random.Random(0).sample(chosen, min(given.sample or len(chosen), len(chosen)))
    done = load_outcomes([m for _, m in every])
    run([(k, m) for k, m in chosen if str(m) not in done])
    record([m for _, m in every])
    done = load_outcomes([m for _, m in chosen])
    return not all(done.get(str(m)) for _, m in chosen)


if __name__ == "__main__":
    sys.exit(main())
