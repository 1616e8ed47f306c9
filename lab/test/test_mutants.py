"""What `nox -s mutants` breaks: by rule, everywhere in the folders that it names."""

import faulthandler
import json
import multiprocessing
import os
import re
import signal
import time
import warnings
from multiprocessing.pool import ThreadPool

import pytest

from lab import mutants as tool
from lab.mutants import KERNELS, PIN, TESTS, WAIVED, instrument, mutants, mutants_of, sources
from testing.processes import run_checked


@pytest.mark.parametrize("text, expected", [
    ("return lt(a, f(b));", [("lt(a, f(b))", "le(a, f(b))")]),
    ("x = select(m, E::half_of(g), g);", [
        ("select(m, E::half_of(g), g)", "select(m, g, E::half_of(g))"), ("E::half_of(g)", "g"),
    ]),
    ("M open = logical_not<M>(a) | b;", [("logical_not<M>(a)", "M(a)")]),
    ("return a | b & c;", [("b & c", "b | c")]),
    ("if (a.size() > 2) {", [("a.size() > 2", "!(a.size() > 2)")]),
    ("y = has ? a : b;", [("has", "!(has)")]),
    ("return {kBothArgs, 0};", [("kBothArgs", "kSelfBit")]),
    ("{\n  check(a, b);\n  x = a;\n}", [("check(a, b);", ";"), ("x = a;", ";")]),
    ("Mask<K> lt(K a, K b) {}\n// lt(a, b)\nstatic_assert(a == b);\nconstexpr bool f(int a) {\n return a && b; }", []),
    ("if constexpr (a && b) { return eq(a, b); }", [("eq(a, b)", "le(a, b)")]),
])  # fmt: skip
def test_rules_for_cpp(text, expected):
    assert [
        (m.original, " ".join(m.replacement.split())) for m in mutants_of("a.h", text)
    ] == expected


@pytest.mark.parametrize("original, replacement", [
    ("ScalarClampArgs{{a, b}, differentiated}", "ScalarClampArgs{{b, a}, differentiated}"),
    ("std::array{a_t, b_t, c_t}", "std::array{b_t, a_t, c_t}"),
    ("at::where(passes, grad, 0)", "at::where(passes, 0, grad)"),
])  # fmt: skip
def test_rules_for_formulas(original, replacement):
    text = f"- name: f({original})\n  x: g({original})\n"
    assert [(m.at, m.original, m.replacement) for m in mutants_of("a.yaml", text)] == [
        ("2:8", original, replacement)
    ]


def test_a_broken_file_is_itself_unless_a_mutant_runs():
    text = "if (has) { return select(m, eq(a, b), c); }"
    inner = "(::clampgrad_mutant == 3 ? (le(a, b)):(eq(a, b)))"
    assert instrument(text, [*enumerate(mutants_of("a.h", text), 1)]) == (
        "if (((::clampgrad_mutant == 1) != bool(has)))"
        f" {{ return (::clampgrad_mutant == 2 ? (select(m, c, eq(a, b))):(select(m, {inner}, c))); }}"
    )


def test_every_file_with_a_rule_has_mutants():
    files = {m.file for m in mutants()}
    # Declarations, and what the compiler decides.
    headers = {"base": "bits bounds convention for_python gpu", "pin": "pin"}
    headers["kernels"] = "call dim_order fused layout rules/all values"
    without = {f"csrc/{folder}/{n}.h" for folder, names in headers.items() for n in names.split()}
    without |= {f"csrc/base/{n}.cpp" for n in ("stamp", "single_threaded")}
    assert sources().keys() - files == without
    assert all(any(f.startswith(folder) for f in files) for folder in TESTS)


def test_what_is_waived_is_made():
    made = [(m.file, " ".join(m.original.split())) for m in mutants()]
    for file, expressions in WAIVED.items():
        for expression, reason in expressions.items():
            assert reason and (file, expression) in made


def test_every_test_that_decides_is_there():
    """One that was renamed would decide nothing."""
    for test in {*KERNELS, *PIN}:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}", (tool.ROOT / file).read_text(), re.MULTILINE), test


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What has run is read from there."""
    monkeypatch.setattr(tool, "RAN", tmp_path / "ran.jsonl")
    monkeypatch.setattr(tool, "COMPILED", tmp_path / "compiled")
    monkeypatch.setattr(tool, "BUILT_FROM", tmp_path / "built_from")
    tool.BUILT_FROM.write_text("these files")
    return tmp_path


def rows(*results):
    """Those of the mutants, as a run writes them."""
    values = ((str(m), by, tool.stamp(tool.deciding_test_files(m, by))) for m, by in results)
    return "".join(f"\n{json.dumps(row)}\n" for row in values)


def test_an_interrupted_run_goes_on_until_a_file_changes(tmp_path, monkeypatch):
    built = []
    for name in ("TREE", "LIB", "RAN", "BUILT_FROM"):
        monkeypatch.setattr(tool, name, tmp_path / name)
    monkeypatch.setattr(tool, "build_quickly", lambda *paths, **_: built.append(paths))

    tool.build()
    mutant = tool.Mutant("csrc/base/bounds.cpp", "1:1", 0, 1, "a", "b")
    tool.RAN.write_text(rows((mutant, "a cell")))
    tool.build()
    assert len(built) == len(tool.load_outcomes([mutant])) == 1

    monkeypatch.setattr(tool, "PACKAGE", ("csrc",))  # as if the other files had gone
    assert not tool.is_built()
    tool.build()
    assert len(built) == 2 and not tool.load_outcomes([mutant])


def test_what_is_new_and_in_no_commit_is_built(tmp_path, monkeypatch):
    """It has mutants."""
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    run_checked("git", "-C", tmp_path, "init", "-q")
    before = tool.hash_build()
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/new.cpp").write_text("return a && b;")
    assert tool.hash_build() != before


def test_what_was_cut_off_has_not_run(folder):
    mutants = [tool.Mutant("csrc/pin/pin.cpp", f"{n}:1", 0, 1, "a", "b") for n in range(3)]
    first, second, third = (rows((m, None)) for m in mutants)
    tool.RAN.write_text(first + second[:-9] + third + "\0\0\n[1]\n7")
    assert [*tool.load_outcomes(mutants)] == [str(mutants[0]), str(mutants[2])]


def test_a_record_is_of_all(folder, monkeypatch):
    mutants = [tool.Mutant("csrc/pin/pin.cpp", f"{n}:1", 0, 1, "a", "b") for n in range(2)]
    written = []
    monkeypatch.setattr(tool.records, "write", lambda *what, **of: written.append(what))
    tool.RAN.write_text(rows((mutants[0], "a cell")))
    tool.record(mutants)
    assert not written
    tool.RAN.write_text(rows((mutants[0], "a cell"), (mutants[1], None)))
    tool.record(mutants)
    ((name, (row,)),) = written
    assert (name, row["killed"], row["survived"]) == ("mutants", 1, [str(mutants[1])])


def test_a_test_that_changes_while_it_runs_has_decided_nothing(folder, monkeypatch):
    """What ran is the text of before."""
    file = folder / "test_one.py"
    file.write_text("def test_it(): assert False")
    mutant = tool.Mutant("csrc/pin/pin.cpp", "1:1", 0, 1, "a", "b")
    monkeypatch.setattr(tool, "ROOT", folder)
    monkeypatch.setattr(tool, "chosen_cells", dict)
    monkeypatch.setattr(tool.pytest, "main", lambda words: None)  # collects them
    monkeypatch.setitem(TESTS, "csrc/pin", ["test_one.py"])
    monkeypatch.setattr(tool, "outcome", lambda k, *given: k and "test_one.py")
    with warnings.catch_warnings():  # which a run ignores from then on
        tool.run([(1, mutant)])
    assert tool.load_outcomes([mutant]) == {str(mutant): "test_one.py"}
    tool.RAN.unlink()

    def outcome(k, *given):
        file.write_text("def test_it(): pass")
        return k and "test_one.py"

    monkeypatch.setattr(tool, "outcome", outcome)
    with warnings.catch_warnings():
        tool.run([(1, mutant)])
    assert tool.RAN.exists() and not tool.load_outcomes([mutant])


def test_what_noticed_the_last_mutants_of_a_file_comes_first(folder, monkeypatch):
    """Tests, the last of them first; the cells have run before."""
    unbroken = [None] * 3  # cells, tests, tests of the pin
    outcomes, likely = iter([*unbroken, "a test", None, tool.CRASH, "a cell", None]), []

    def outcome(k, cells, tests, likely_names):
        likely.append(likely_names)
        return next(outcomes)

    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.setattr(tool, "chosen_cells", lambda: {"a cell": None})
    monkeypatch.setattr(tool.pytest, "main", lambda words: None)
    monkeypatch.setattr(tool, "outcome", outcome)
    files = ("pin.cpp", "kernels.cpp", *["pin.cpp"] * 3)
    mutants = [tool.Mutant(f"csrc/pin/{file}", "1:1", 0, 1, "a", "b") for file in files]
    with warnings.catch_warnings():
        tool.run([*enumerate(mutants, 1)])
    assert likely[3:] == [[], [], ["a test"], ["a test"], ["a test"]]


def test_a_worker_that_somebody_ends_says_nothing(tmp_path, monkeypatch):
    """Nor does an error of its own, as where no space is left. Such a mutant runs again later,
    and one that crashes is noticed."""

    def report_first_failure(signalled, compiled, send_end):
        faulthandler.disable()  # it would show where
        if signalled not in (0, signal.SIGKILL):
            signal.signal(signalled, signal.SIG_DFL)  # nohup ignores one of them
        os.kill(os.getpid(), signalled) if signalled else os._exit(1)

    monkeypatch.setattr(tool, "COMPILED", tmp_path)
    monkeypatch.setattr(tool, "report_first_failure", report_first_failure)
    for signalled in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, 0):
        with pytest.raises(tool.WorkerKilled):
            tool.outcome(signalled)
    for signalled in (signal.SIGSEGV, signal.SIGABRT):
        assert tool.outcome(signalled) == "a crash"
    assert tool.outcome(signal.SIGXCPU) == tool.NO_END  # it has computed for too long
    assert not [*tmp_path.iterdir()]


def test_a_test_that_computes_for_ever_has_no_end(tmp_path, monkeypatch):
    """Each test has its own time, so many short ones may take longer in all."""

    def report_first_failure(seconds, compiled, send_end):
        for of_test in seconds:
            tool.FirstFailure().pytest_runtest_logstart()
            until = time.process_time() + of_test
            while time.process_time() < until:
                pass
        send_end.send(None)

    monkeypatch.setattr(tool, "COMPILED", tmp_path)
    monkeypatch.setattr(tool, "CPU_SECONDS", 1)
    monkeypatch.setattr(tool, "report_first_failure", report_first_failure)
    assert tool.outcome([0.6, 0.6, 0.6, 0.6, 0.6]) is None
    assert tool.outcome([0.1, 60]) == tool.NO_END


def test_the_end_of_a_worker_is_noticed_beside_others(tmp_path, monkeypatch):
    """They may be started at the same time."""

    def report_first_failure(seconds, compiled, send_end):
        time.sleep(seconds)
        os._exit(1)

    class Slow(multiprocessing.get_context("fork").Process):
        def start(self):
            time.sleep(0.5)
            super().start()

    monkeypatch.setattr(tool, "COMPILED", tmp_path)
    monkeypatch.setattr(tool, "report_first_failure", report_first_failure)
    monkeypatch.setattr(multiprocessing.context.ForkContext, "Process", Slow)
    ended, began = {}, time.monotonic()

    def one(seconds):
        with pytest.raises(tool.WorkerKilled):
            tool.outcome(seconds)
        ended[seconds] = time.monotonic() - began

    with ThreadPool(2) as pool:
        pool.map(one, [1, 8], chunksize=1)
    assert ended[1] < ended[8] - 3


def test_an_outcome_rests_on_the_tests_that_decide_it(folder, monkeypatch):
    file = folder / "test_kernels.py"
    file.write_text("as it is\n")
    killed = ["test_others.py::test_two", "a cell", None, tool.CRASH, tool.NO_END]
    mutants = [tool.Mutant("csrc/pin/pin.cpp", f"{n}:1", 0, 1, "a", "b") for n in range(5)]
    monkeypatch.setattr(tool, "ROOT", folder)
    monkeypatch.setitem(TESTS, "csrc/pin", ["test_kernels.py::test_one", "test_others.py"])
    tool.RAN.write_text(rows(*zip(mutants, killed, strict=True)))
    assert [*tool.load_outcomes(mutants).values()] == killed
    file.write_text("with another test\n")
    assert [*tool.load_outcomes(mutants).values()] == killed[:2]
    tool.BUILT_FROM.write_text("other files")
    assert not tool.load_outcomes(mutants)
